// The settings of the policy: what each is called, what it does, and how its value is read and written.

import { count, duration } from "../../lib/format";
import type { Policy } from "./asked";

export type Value = Policy[keyof Policy];

interface Common {
  key: keyof Policy;
  name: string;
  help: string;
}
export type Field = Common &
  (
    | { kind: "number"; unit?: string; whole?: boolean; /** What it means to have none; without it there must be one. */ none?: string }
    | { kind: "choice"; choices: readonly string[] }
    | { kind: "lines" | "approval" | "json" }
  );

export interface Section {
  title: string;
  fields: readonly Field[];
}

const seconds = "s";
export const SECTIONS: readonly Section[] = [
  {
    title: "What plans may do by themselves",
    fields: [
      { key: "mode", name: "mode", kind: "choice", choices: ["auto", "advisory", "paused"], help: "auto: plans are carried out; advisory: moves wait for a person; paused: no rounds, nothing starts and nothing moves" },
      { key: "auto_approve", name: "approved by itself", kind: "approval", help: "in mode advisory: plans that keep within this need nobody" },
      { key: "proposals_last_seconds", name: "proposals last", kind: "number", unit: seconds, help: "proposals that nobody decides for so long expire" },
      { key: "max_moves", name: "moves in a round", kind: "number", whole: true, none: "no limit", help: "most jobs whose GPUs one round may change" },
      { key: "move_windows", name: "moves are made", kind: "lines", help: "only at these times of the week, in UTC, one a line (Mon-Fri 22:00-06:00); none: at any time" },
    ],
  },
  {
    title: "What is maximised",
    fields: [
      {
        key: "objective",
        name: "objective",
        kind: "choice",
        choices: ["goodput", "sia", "sia_simulated", "pollux", "pollux_layouts", "least_attained", "fifo_backfill", "shortest_remaining", "static"],
        help: "goodput is Headway’s own; the others are there to be compared with",
      },
      { key: "power", name: "fairness power p", kind: "number", help: "1: the work done itself, 0: its logarithm, below: fairer still" },
      { key: "epsilon", name: "ε", kind: "number", help: "of the value function ((s+ε)^p − ε^p)/p" },
      { key: "shortest_first", name: "shortest first", kind: "number", help: "how far jobs with less left go first: 0 not at all, towards 1 strictly" },
      { key: "service_exponent", name: "service exponent", kind: "number", help: "weights fall with the GPU-time a job has had; 0: they do not" },
      { key: "domain_loss", name: "domain loss", kind: "number", help: "goodput lost for each rack beyond the first" },
      { key: "power_cap", name: "power cap", kind: "json", help: "what the GPUs draw together, as JSON: {\"watts\": 90000}; empty: none" },
    ],
  },
  {
    title: "When a move pays",
    fields: [
      { key: "horizon_seconds", name: "horizon", kind: "number", unit: seconds, help: "longest time over which a move may pay for itself" },
      { key: "min_gain", name: "least gain", kind: "number", help: "share of what the job is worth that a move must gain beyond its cost" },
      { key: "fresh_gain", name: "gain right after a move", kind: "number", help: "what the least gain is right after a move; it falls to the one above" },
      { key: "settling_seconds", name: "settling", kind: "number", unit: seconds, help: "how fast it falls: time constant" },
      { key: "min_batch_gain", name: "least gain of a batch", kind: "number", help: "share by which a live change of the batch must raise the job’s goodput" },
      { key: "min_return", name: "least return", kind: "number", help: "what growth must bring for each further GPU, as a share of what the job’s best GPU does" },
    ],
  },
  {
    title: "Who waits",
    fields: [
      { key: "patience_seconds", name: "patience", kind: "number", unit: seconds, none: "nobody is ever due", help: "a job that has waited so long is due: others shrink for it" },
      { key: "patience_share", name: "share of the run time", kind: "number", help: "… and this many times as long as it would run at its smallest size (of one size only: half of both, a third where it needs over half of the GPUs of a type), up to sixteen times the patience" },
      { key: "turn_seconds", name: "a turn", kind: "number", unit: seconds, help: "for a job that is due a peer may be stopped that has run so long" },
      { key: "usage_half_life_seconds", name: "half-life of usage", kind: "number", unit: seconds, help: "after this long GPU-time counts half in what a project has used" },
    ],
  },
  {
    title: "Rounds",
    fields: [
      { key: "round_every_seconds", name: "at the latest every", kind: "number", unit: seconds, help: "longest time between rounds while jobs run" },
      { key: "round_pause_seconds", name: "at the soonest after", kind: "number", unit: seconds, help: "shortest time between rounds; arrivals are gathered" },
      { key: "solver", name: "solver", kind: "choice", choices: ["headway", "milp"], help: "milp is exact, and for small clusters; where it has no answer Headway’s own decides" },
      { key: "node_budget", name: "budget of work", kind: "number", whole: true, help: "nodes that the solver may look at" },
      { key: "tolerance", name: "tolerance", kind: "number", help: "relative gap at which the search may stop" },
    ],
  },
];

const FIELDS = new Map(SECTIONS.flatMap((section) => section.fields.map((field) => [field.key as string, field] as const)));
const OTHERS: Record<string, string> = { rows: "site rules", user_quota: "what each user may have", user_quotas: "what single users may have" };

export function nameOf(key: string): string {
  return FIELDS.get(key)?.name ?? OTHERS[key] ?? key;
}

/** A value in words: with its unit, and what it means to have none. */
export function shown(key: string, value: unknown): string {
  const field = FIELDS.get(key);
  if (value == null) return (field?.kind === "number" && field.none) || "none";
  if (Array.isArray(value) && value.length === 0) return "none";
  if (field?.kind === "number" && typeof value === "number") {
    if (field.unit === seconds) return value < 60 ? `${value} s` : `${duration(value)} (${count(value)} s)`;
    return field.whole ? count(value) : String(value);
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What is typed into a field of numbers: a value, none, or why it is neither. */
export function read(field: Field & { kind: "number" }, text: string): { value: number | null } | { wrong: string } {
  const typed = text.trim();
  if (typed === "") return field.none ? { value: null } : { wrong: "there must be a number" };
  const value = Number(typed);
  if (!Number.isFinite(value)) return { wrong: "this is no number" };
  if (field.whole && !Number.isInteger(value)) return { wrong: "this is no whole number" };
  return value < 0 && field.key !== "power" ? { wrong: "this is less than zero" } : { value };
}

/** Whether two values of settings are the same, however they were made. */
export function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(sorted(one ?? null)) === JSON.stringify(sorted(other ?? null));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)).map(([key, part]) => [key, sorted(part)]));
}
