// What jobs make now, held against a static split and against what was predicted. Pure.

import type { Goodput, JobGoodput } from "./asked";

/** A job beside what it would do on a static split, at the reference batch: there goodput and throughput are the same. */
export interface Against {
  job: JobGoodput;
  splitGpus: number;
  /** Raw tokens per second over those of the split. */
  faster: number;
  /** Progress per token, over that at the reference batch. */
  efficiency: number;
  /** Goodput over that of the split. */
  gain: number;
}

export interface Compared {
  jobs: Against[];
  /** Why the others are not among them. */
  unmeasured: number;
  /** Opaque, or beyond those for which a split is worked out. */
  withoutSplit: number;
  /** They would wait. */
  without: number;
}

export function compared({ jobs, items }: Goodput): Compared {
  const split = new Map(items.map((item) => [item.job_id, item]));
  const found: Compared = { jobs: [], unmeasured: 0, withoutSplit: 0, without: 0 };
  for (const job of jobs) {
    const theirs = split.get(job.job_id);
    const { throughput_tokens_per_second: throughput, efficiency } = job;
    if (!throughput || !efficiency) found.unmeasured += 1;
    else if (!theirs) found.withoutSplit += 1;
    else if (theirs.goodput_tokens_per_second <= 0) found.without += 1;
    else {
      const faster = throughput / theirs.goodput_tokens_per_second;
      found.jobs.push({ job, splitGpus: theirs.gpus, faster, efficiency, gain: faster * efficiency });
    }
  }
  return found;
}

/** A job whose goodput was measured beside what the plan expected. */
export interface Foretold {
  job: JobGoodput;
  predicted: number;
  measured: number;
  /** Above 0 more came than was predicted. */
  error: number;
}

/** The furthest off first. */
export function foretold({ jobs }: Goodput): Foretold[] {
  const both = jobs.flatMap((job): Foretold[] => {
    const { goodput_tokens_per_second: measured, predicted_goodput_tokens_per_second: predicted } = job;
    return measured && predicted ? [{ job, predicted, measured, error: measured / predicted - 1 }] : [];
  });
  return both.sort((one, other) => Math.abs(other.error) - Math.abs(one.error));
}

/** Mean of how far off the model is: each job as much, and by the GPUs that each holds. */
export function meanErrors(jobs: readonly Foretold[]): { byJob: number; byGpus: number } | undefined {
  const gpus = jobs.reduce((sum, { job }) => sum + job.gpus, 0);
  if (jobs.length === 0 || gpus === 0) return undefined;
  const sum = (weight: (one: Foretold) => number) => jobs.reduce((all, one) => all + Math.abs(one.error) * weight(one), 0);
  return { byJob: sum(() => 1) / jobs.length, byGpus: sum(({ job }) => job.gpus) / gpus };
}

/** What a band should hold. */
export const HELD = 0.8;

/** Whether bands held what they promise, beyond chance: two standard errors of so many. */
export function verdict(coverage: number | null | undefined, predictions: number): "as it should be" | "too narrow" | "too wide" | undefined {
  if (coverage == null || predictions === 0) return undefined;
  const chance = 2 * Math.sqrt((HELD * (1 - HELD)) / predictions);
  if (Math.abs(coverage - HELD) <= chance) return "as it should be";
  return coverage < HELD ? "too narrow" : "too wide";
}
