// What lies under the pointer, in words, and where pressing it leads. Pure.

import { absolute, clock, duration, percent } from "../../lib/format";
import type { Bar, Predicted, Row, Under } from "./rows";

/** So near to the present a press leads to the present. */
const PRESENT_MS = 30_000;

export interface Told {
  title: string;
  lines: string[];
}

export function told(row: Row, under: Under | undefined, byNode: boolean): Told {
  const of = [row.project, row.owner].filter(Boolean).join(", ");
  const title = row.deleted ? `${row.name} (deleted since)` : row.name;
  if (!under) return { title, lines: of ? [of] : [] };
  switch (under.kind) {
    case "fault": {
      const { message, at, with: other } = under.fault;
      const about = other === undefined ? [] : [`${byNode ? "job" : "node"} ${other}`];
      return { title, lines: [`✕ ${message}`, ...about, absolute(at), "press for what led to it"] };
    }
    case "held": {
      const { held } = under;
      const who = held.job ? (held.name ?? held.job.slice(-8)) : "a job that is not yours to know of";
      return { title: `${who} on ${title}`, lines: [`${held.gpus} of ${row.slots} GPUs`, lasting(held.from, held.to)] };
    }
    case "bar":
      return { title, lines: [...(of ? [of] : []), ...barTold(under.bar, byNode)] };
    default:
      return { title, lines: [...(of ? [of] : []), predictedTold(under.kind, under.of)] };
  }
}

function barTold(bar: Bar, byNode: boolean): string[] {
  const gpus = byNode
    ? bar.healthy !== undefined && bar.gpus !== undefined && bar.healthy < bar.gpus && `${bar.healthy} of ${bar.gpus} GPUs are healthy`
    : bar.gpus && `${bar.gpus} GPUs${bar.layout ? `, ${bar.layout}` : ""}`;
  const state = bar.shares.length > 0 ? `${mixture(bar)}, drawn together` : bar.state;
  return [state, lasting(bar.from, bar.to), gpus, bar.cause].filter((line): line is string => Boolean(line));
}

export function mixture(bar: Bar): string {
  return bar.shares.map(({ state, share }) => `${percent(share)} ${state}`).join(", ");
}

function lasting(from: number, to: number): string {
  return `${clock(from)} to ${clock(to)}, ${duration((to - from) / 1_000)}`;
}

export function predictedTold(kind: "start" | "end", { p10, p50, p90 }: Predicted): string {
  const [low, high] = [p10, p90].map((at) => (at === undefined ? "later than was looked" : clock(at)));
  const middle = p50 === undefined ? "at a moment that is not known" : `about ${clock(p50)}`;
  return `predicted to ${kind} ${middle}${p10 === undefined && p90 === undefined ? "" : ` (${low} to ${high})`}`;
}

/** The page that tells more, and of which moment; undefined: of the present. `until`: the past moment that is shown. */
export type Opens = { page: "job" | "node"; id: string; at: string | undefined } | { page: "event"; seq: number };

export function opens(row: Row, under: Under, moment: number, shown: { now: number; until: string | undefined; byNode: boolean }): Opens | undefined {
  const at = moment > shown.now - PRESENT_MS ? shown.until : new Date(moment).toISOString();
  switch (under.kind) {
    case "fault":
      return { page: "event", seq: under.fault.seq };
    case "held":
      return under.held.job ? { page: "job", id: under.held.job, at } : undefined;
    case "bar":
      return { page: shown.byNode ? "node" : "job", id: row.id, at };
    default:
      return { page: "job", id: row.id, at: shown.until };
  }
}
