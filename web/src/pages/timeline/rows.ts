// Lanes as they are drawn: times as numbers, GPUs of a node in slots that do not overlap, faults beside what they befell. Pure.

import type { EventRecord } from "../../api/client";
import type { components } from "../../api/schema";

type Schemas = components["schemas"];
export type Lane = Schemas["TimelineLane"];
export type Timeline = Schemas["Timeline"];

export interface Bar {
  from: number;
  to: number;
  state: string;
  gpus: number | undefined;
  healthy: number | undefined;
  /** "dp4 tp2 pp1". */
  layout: string | undefined;
  cause: string | undefined;
  /** Of several states that are drawn together, the longest first; empty for one state. */
  shares: { state: string; share: number }[];
}

/** GPUs of a node that a job had. */
export interface Held {
  from: number;
  /** Of GPUs that are held still the end of what is told. */
  to: number;
  gpus: number;
  /** Undefined: not the reader's to know. */
  job: string | undefined;
  name: string | undefined;
  /** The first of the GPU slots it is drawn in. */
  slot: number;
}

export interface Predicted {
  p10: number | undefined;
  p50: number | undefined;
  p90: number | undefined;
}

/** A fault of the cluster. */
export interface Mark {
  at: number;
  seq: number;
  message: string;
}

/** Of a row. */
export interface Fault extends Mark {
  /** Beside a job the node that the event is about, beside a node the job, by name. */
  with: string | undefined;
}

export interface Row {
  id: string;
  name: string;
  project: string | undefined;
  owner: string | undefined;
  deleted: boolean;
  bars: Bar[];
  held: Held[];
  /** GPUs of a node. */
  slots: number;
  start: Predicted | undefined;
  end: Predicted | undefined;
  faults: Fault[];
}

export function rowsOf(lanes: readonly Lane[], now: number, faults: readonly EventRecord[]): Row[] {
  const befallen = new Map<string, Fault[]>();
  for (const event of faults) {
    const subjects = [
      [event.job_id, event.node_name],
      [event.node_id, event.job_name],
    ] as const;
    for (const [id, other] of subjects) {
      if (!id) continue;
      const fault = { at: Date.parse(event.at), seq: event.seq, message: event.message, with: other ?? undefined };
      const others = befallen.get(id);
      if (others) others.push(fault);
      else befallen.set(id, [fault]);
    }
  }
  return lanes.map((lane) => rowOf(lane, now, befallen.get(lane.id) ?? []));
}

function rowOf(lane: Lane, now: number, faults: Fault[]): Row {
  const bars = lane.bars.map(barOf);
  const slots = Math.max(0, ...bars.map((bar) => bar.gpus ?? 0));
  return {
    id: lane.id,
    name: lane.name,
    project: lane.project ?? undefined,
    owner: lane.owner ?? undefined,
    deleted: lane.deleted,
    bars,
    slots,
    held: slotted(lane.held, slots, now),
    start: predicted(lane.predicted_start),
    end: predicted(lane.predicted_end),
    faults,
  };
}

function barOf(bar: Schemas["TimelineBar"]): Bar {
  const seconds = Object.entries(bar.seconds_by_state ?? {});
  const all = seconds.reduce((sum, [, one]) => sum + one, 0);
  return {
    from: Date.parse(bar.from),
    to: Date.parse(bar.to),
    state: bar.state,
    gpus: bar.gpus ?? undefined,
    healthy: bar.gpus_healthy ?? undefined,
    layout: bar.layout ? `dp${bar.layout.dp} tp${bar.layout.tp} pp${bar.layout.pp}` : undefined,
    cause: bar.cause ?? undefined,
    shares: all > 0 ? seconds.map(([state, one]) => ({ state, share: one / all })).sort((one, other) => other.share - one.share) : [],
  };
}

function predicted(of: Schemas["TimelinePrediction"] | null | undefined): Predicted | undefined {
  if (!of) return undefined;
  const moment = (text: string | null | undefined) => (text ? Date.parse(text) : undefined);
  return { p10: moment(of.p10), p50: moment(of.p50), p90: moment(of.p90) };
}

/** Each into the first slots that are free for it; where none are, at the top. */
function slotted(held: readonly Schemas["TimelineHeld"][], slots: number, now: number): Held[] {
  const until: number[] = new Array<number>(slots).fill(Number.NEGATIVE_INFINITY);
  const sorted = held
    .map((one) => ({ from: Date.parse(one.from), to: one.to ? Date.parse(one.to) : now, gpus: one.gpus, job: one.job_id ?? undefined, name: one.job_name ?? undefined }))
    .sort((one, other) => one.from - other.from);
  return sorted.map((one) => {
    let slot = 0;
    while (slot + one.gpus <= slots && until.slice(slot, slot + one.gpus).some((end) => end > one.from)) slot++;
    if (slot + one.gpus > slots) slot = 0;
    for (let at = slot; at < Math.min(slots, slot + one.gpus); at++) until[at] = one.to;
    return { ...one, slot };
  });
}

/** What of a row lies under a moment, and at a height of it between 0 and 1. */
export type Under = { kind: "fault"; fault: Fault } | { kind: "held"; held: Held } | { kind: "bar"; bar: Bar } | { kind: "start" | "end"; of: Predicted };

/** `near`: how far beside it a mark still counts, in milliseconds. */
export function under(row: Row, at: number, height: number, near: number): Under | undefined {
  const fault = row.faults.find((one) => Math.abs(one.at - at) <= near * 2);
  if (fault) return { kind: "fault", fault };
  const slot = height * row.slots;
  const held = row.held.find((one) => one.from - near <= at && at <= one.to + near && one.slot <= slot && slot <= one.slot + one.gpus);
  if (held) return { kind: "held", held };
  const bar = row.bars.find((one) => one.from - near <= at && at <= one.to + near);
  if (bar) return { kind: "bar", bar };
  if (row.start && within(row.start, at, near)) return { kind: "start", of: row.start };
  if (row.end && within(row.end, at, near)) return { kind: "end", of: row.end };
  return undefined;
}

function within({ p10, p50, p90 }: Predicted, at: number, near: number): boolean {
  const known = [p10, p50, p90].filter((one) => one !== undefined);
  return known.length > 0 && at >= Math.min(...known) - near * 4 && at <= Math.max(...known) + near * 4;
}
