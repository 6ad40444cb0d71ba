// Where the GPU-time of a window went, so that it adds up: all GPUs, less those that were broken, less those that nobody held, less what
// jobs held without getting on, leaves what was useful. What the parts do not add up to is a part of its own. Pure.

import type { ClusterPoint, Usage } from "./asked";

type Idle = "broken" | "unreachable" | "withheld" | "reserved" | "idle_no_demand" | "idle_waiting";
export type Cause = Idle | "free" | "starting" | "saving" | "displaced" | "rework" | "idle" | "unaccounted" | "useful";

export interface Part {
  cause: Cause;
  gpuHours: number;
}

export interface Account {
  from: string;
  to: string;
  /** GPU-hours that are split up: of all GPUs, or of the healthy ones where more is not kept. */
  total: number;
  of: "all" | "healthy";
  /** In the order in which they are taken off; what was useful is left. */
  parts: Part[];
  /** What the parts do not add up to; below zero where they say more than there was. */
  unaccounted: number;
  /** Of the window, for how long figures were kept. */
  sampledSeconds: number;
  windowSeconds: number;
  /** GPU-hours that jobs held while no figures were kept; none of the rest. */
  unsampled: number;
}

/** More than this share that nobody can account for is told as a fault. */
export const TOLERATED = 0.02;

/** What GPUs do that no job holds, as the overview names it; `free` where nobody counted them apart. */
const IDLE = ["broken", "unreachable", "withheld", "reserved", "idle_no_demand", "idle_waiting"] as const;
const NOBODYS = [...IDLE, "free"] as const;
/** As usage names them. */
const LOST = ["starting", "saving", "displaced", "rework", "idle"] as const;
const CAUSES = [...LOST, "useful"] as const;
type Held = Record<(typeof CAUSES)[number], number>;

/** `points` are the cluster's figures in the steps of the usage; without them only healthy GPU-time is known. */
export function account(usage: Usage, points: readonly ClusterPoint[] | undefined): Account {
  const [from, to] = [Date.parse(usage.from), Date.parse(usage.to)];
  const step = (usage.step_seconds ?? 0) * 1_000;
  const figures = points && new Map(points.map((point) => [Date.parse(point.at), point]));
  const held: Held = { starting: 0, saving: 0, displaced: 0, rework: 0, idle: 0, useful: 0 };
  const nobody = { broken: 0, unreachable: 0, withheld: 0, reserved: 0, idle_no_demand: 0, idle_waiting: 0, free: 0 };
  let [total, sampledSeconds, unsampled] = [0, 0, 0];

  for (const { at, items, healthy_gpu_hours: healthy } of usage.steps ?? []) {
    const begins = Date.parse(at);
    const hours = (Math.min(begins + step, to) - Math.max(begins, from)) / 3_600_000;
    const used = items.reduce((sum, row) => sum + row.gpu_hours, 0);
    const figure = figures?.get(begins);
    if (figures ? figure === undefined : healthy == null) {
      unsampled += used;
      continue;
    }
    sampledSeconds += hours * 3_600;
    for (const row of items) {
      const cause = CAUSES.find((known) => known === row.cause);
      if (cause) held[cause] += row.gpu_hours;
    }
    if (!figure) {
      total += healthy ?? 0;
      nobody.free += Math.max(0, (healthy ?? 0) - used);
      continue;
    }
    total += figure.gpus_total * hours;
    const by = figure.gpus_by_activity;
    if (by) {
      for (const cause of IDLE) nobody[cause] += (by[cause] ?? 0) * hours;
    } else {
      nobody.broken += (figure.gpus_total - figure.gpus_healthy) * hours;
      nobody.free += Math.max(0, figure.gpus_healthy - figure.gpus_busy) * hours;
    }
  }

  const known = { ...nobody, ...held };
  const rest = total - Object.values(known).reduce((sum, hours) => sum + hours, 0);
  // What floating point leaves is nothing.
  const unaccounted = Math.abs(rest) < total * 1e-9 ? 0 : rest;
  const causes = [...NOBODYS, ...LOST] as const;
  return {
    from: usage.from,
    to: usage.to,
    total,
    of: figures ? "all" : "healthy",
    parts: [
      ...causes.map((cause) => ({ cause, gpuHours: known[cause] })),
      { cause: "unaccounted", gpuHours: unaccounted },
      { cause: "useful", gpuHours: known.useful },
    ],
    unaccounted,
    sampledSeconds,
    windowSeconds: (to - from) / 1_000,
    unsampled,
  };
}

/** Of what jobs held, what was not useful: in all, and of each cause, the most first. */
export function lost(usage: Usage): { gpuHours: number; causes: [string, number][] } {
  const others = usage.items.filter((row) => row.cause !== "useful");
  const useful = usage.items.find((row) => row.cause === "useful")?.gpu_hours ?? 0;
  return { gpuHours: Math.max(0, usage.total_gpu_hours - useful), causes: others.map((row) => [row.cause ?? "", row.gpu_hours]) };
}
