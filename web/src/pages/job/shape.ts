// Measurements as charts take them: where nothing was measured is a gap, and what was had when is a segment. Pure.

import type { SeriesPoint } from "../../api/client";
import type { AllocationRecord, Configuration } from "./asks";

/** A moment of the API in seconds since 1970. */
export function seconds(at: string): number {
  return Date.parse(at) / 1_000;
}

/** What a chart's times stand for: a point, or nothing where there is a gap. */
export interface Track {
  times: number[];
  points: (SeriesPoint | null)[];
}

/** How far apart measurements usually lie, as they themselves tell; the server merges more of them the longer the span. */
export function spacingOf(points: readonly SeriesPoint[]): number {
  const steps: number[] = [];
  for (let at = 1; at < points.length; at++) {
    const [before, here] = [points[at - 1]!, points[at]!];
    if (before.generation === here.generation) steps.push(seconds(here.at) - seconds(before.at));
  }
  steps.sort((one, other) => one - other);
  return steps[Math.floor(steps.length / 2)] ?? points[0]?.step_time_seconds ?? 0;
}

/**
 * Whether the job did not train between two neighbours: another generation came, or more time went by than the steps between them took. Times of
 * measurements are as coarse as they lie apart, and a step that is under way has not been told yet.
 */
export function isGap(before: SeriesPoint, here: SeriesPoint, spacing: number): boolean {
  if (before.generation !== here.generation) return true;
  const silent = seconds(here.at) - seconds(before.at) - (here.step - before.step) * here.step_time_seconds;
  return silent > spacing + 2 * here.step_time_seconds;
}

/** Points on an axis of times that only rise, with nothing between those that a gap parts. `until`: nothing is drawn after it. */
export function track(points: readonly SeriesPoint[], until: number): Track {
  const spacing = spacingOf(points);
  const times: number[] = [];
  const shown: (SeriesPoint | null)[] = [];
  const push = (at: number, point: SeriesPoint | null) => {
    times.push(at);
    shown.push(point);
  };
  points.forEach((point, index) => {
    const [before, next] = [points[index - 1], points[index + 1]];
    const begins = before === undefined || isGap(before, point, spacing);
    const last = times[times.length - 1];
    // Two generations may have their first measurement in the same interval.
    const at = last === undefined ? seconds(point.at) : Math.max(seconds(point.at), last + 1);
    if (begins && last !== undefined) push((last + at) / 2, null);
    push(at, point);
    const alone = begins && (next === undefined || isGap(point, next, spacing));
    if (!alone) return;
    // A point with a gap on either side would be no line: it is drawn as long as it stands for.
    const room = next === undefined ? until : seconds(next.at) - 1;
    const end = Math.min(at + Math.max(spacing, point.step_time_seconds), room);
    if (end > at) push(end, point);
  });
  return { times, points: shown };
}

export function valuesOf(of: Track, value: (point: SeriesPoint) => number | null | undefined): (number | null)[] {
  return of.points.map((point) => (point ? (value(point) ?? null) : null));
}

/** Of each generation the mean of its measured goodput, and of how many measurements. */
export function realised(points: readonly SeriesPoint[]): Map<number, { goodput: number; points: number }> {
  const means = new Map<number, { goodput: number; points: number }>();
  for (const { generation, goodput_tokens_per_second: goodput } of points) {
    if (goodput == null) continue;
    const known = means.get(generation) ?? { goodput: 0, points: 0 };
    const many = known.points + 1;
    means.set(generation, { goodput: known.goodput + (goodput - known.goodput) / many, points: many });
  }
  return means;
}

/** The newest measured goodput at each number of GPUs. */
export function measuredAt(points: readonly SeriesPoint[]): Map<number, number> {
  const known = new Map<number, number>();
  for (const point of points) {
    if (point.goodput_tokens_per_second != null) known.set(point.gpus, point.goodput_tokens_per_second);
  }
  return known;
}

/** A time in which a job had one configuration. */
export interface Segment {
  key: string;
  /** Seconds since 1970. */
  from: number;
  to: number;
  phase: "starting" | "running";
  gpus: number;
  configuration: Configuration | null | undefined;
  allocation: AllocationRecord;
}

/** What a job had when: its allocations, parted where the configuration changed while it ran. */
export function segments(allocations: readonly AllocationRecord[], points: readonly SeriesPoint[], now: number): Segment[] {
  const all: Segment[] = [];
  for (const allocation of allocations) {
    const { gpus, generation } = allocation;
    const [granted, end] = [seconds(allocation.granted_at), allocation.ended_at ? seconds(allocation.ended_at) : now];
    const add = (phase: Segment["phase"], from: number, to: number, configuration: Segment["configuration"]) => {
      if (to > from) all.push({ key: `${generation}-${all.length}`, from, to, phase, gpus, configuration, allocation });
    };
    // Of a job that tells of no steps nobody knows when it began with them.
    const tells = allocation.configuration != null;
    const begun = tells ? Math.min(allocation.training_at ? seconds(allocation.training_at) : end, end) : granted;
    add("starting", granted, begun, allocation.configuration);
    let from = begun;
    const own = points.filter((point) => point.generation === generation);
    let at = own[0]?.configuration ?? allocation.configuration;
    for (const point of own) {
      if (same(point.configuration, at)) continue;
      const change = Math.min(Math.max(seconds(point.at), from), end);
      add("running", from, change, at);
      [from, at] = [change, point.configuration];
    }
    add("running", from, end, at);
  }
  return all;
}

function same(one: Segment["configuration"], other: Segment["configuration"]): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** How long a job did not train before this allocation did, and how much of it it waited for GPUs. */
export function standstill(before: AllocationRecord | undefined, here: AllocationRecord): { seconds: number; waiting: number } | undefined {
  if (!here.training_at || !before?.ended_at) return undefined;
  const stopped = seconds(before.ended_at);
  return {
    seconds: Math.max(0, seconds(here.training_at) - stopped),
    waiting: Math.max(0, seconds(here.granted_at) - stopped),
  };
}
