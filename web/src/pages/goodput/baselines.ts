// The rules that goodput is held against. None of them knows of goodput, none pays for a start or a pause, and all are predicted.

import type { components } from "../../api/schema";

type Point = components["schemas"]["GoodputPoint"];

interface Told {
  name: string;
  /** What it gives the jobs of each minute, as a sentence. */
  means: string;
  rate: (point: Point) => number | null | undefined;
}

export const BASELINES = {
  static_split: {
    name: "static split",
    means: "A static split gives the jobs of each minute an equal share of the nodes, at the reference batch and without a change.",
    rate: (point) => point.baseline_tokens_per_second,
  },
  first_come: {
    name: "first come",
    means:
      "First come gives the jobs of each minute, in the order of submission and with backfill, the most GPUs that they accept, at the reference batch; who finds no room waits.",
    rate: (point) => point.first_come_tokens_per_second,
  },
  throughput_only: {
    name: "throughput only",
    means: "Throughput only is our own planner, which tunes sizes and layouts and leaves each batch at the reference.",
    rate: (point) => point.throughput_only_tokens_per_second,
  },
} satisfies Record<string, Told>;

export type BaselineName = keyof typeof BASELINES;
export const BASELINE_NAMES = Object.keys(BASELINES) as BaselineName[];
