// What was made beyond a baseline, in tokens and priced in GPU-hours. A GPU-hour is worth what one made on average within the window,
// so that the price is the same at every moment and the sum does not depend on when it was made. Pure.

import { onSteps, stepsSince } from "../../chart/grid";
import type { Usage } from "../overview/asked";
import type { History } from "./asked";
import { BASELINES, type BaselineName } from "./baselines";

export interface Gain {
  times: number[];
  /** Goodput less that of the baseline, reference tokens per second. */
  beyond: (number | null)[];
  /** GPU-hours gained so far. */
  running: (number | null)[];
  /** In all: as GPU-hours (null without a price), and as a share of what the baseline was to make (null where that is nothing). */
  gpuHours: number | null;
  share: number | null;
  /** GPU-hours that jobs held, and reference tokens that one of them made. */
  held: number;
  tokensPerGpuHour: number | null;
  /** For how long the baseline was worked out, of the window. */
  comparedSeconds: number;
  windowSeconds: number;
}

/** `usage` is of the same window, in the same steps. */
export function gainOf(history: History, usage: Usage, over: BaselineName): Gain {
  const step = history.step_seconds;
  const points = history.series[0]?.points ?? [];
  const times = stepsSince(history.from, history.to, step, points);
  const [from, to] = [Date.parse(history.from) / 1_000, Date.parse(history.to) / 1_000];
  const seconds = times.map((at) => Math.min(at + step, to) - Math.max(at, from));
  const made = onSteps(points, step, times, (point) => point.goodput_tokens_per_second);
  const baseline = onSteps(points, step, times, BASELINES[over].rate);
  const used = onSteps(usage.steps ?? [], usage.step_seconds ?? step, times, (of) => of.items.reduce((sum, row) => sum + row.gpu_hours, 0));

  // What was held while nothing was measured is none of the price.
  const held = times.reduce((sum, _, index) => sum + (made[index] === null ? 0 : (used[index] ?? 0)), 0);
  const tokens = made.reduce<number>((sum, rate, index) => sum + (rate ?? 0) * seconds[index]!, 0);
  const tokensPerGpuHour = held > 0 && tokens > 0 ? tokens / held : null;

  let [gained, toBe, comparedSeconds] = [0, 0, 0];
  const beyond: (number | null)[] = [];
  const running: (number | null)[] = [];
  times.forEach((_, index) => {
    const [ours, theirs] = [made[index] ?? null, baseline[index] ?? null];
    if (ours === null || theirs === null) {
      beyond.push(null);
      running.push(null);
      return;
    }
    gained += (ours - theirs) * seconds[index]!;
    toBe += theirs * seconds[index]!;
    comparedSeconds += seconds[index]!;
    beyond.push(ours - theirs);
    running.push(tokensPerGpuHour === null ? null : gained / tokensPerGpuHour);
  });
  return {
    times,
    beyond,
    running,
    gpuHours: tokensPerGpuHour === null || comparedSeconds === 0 ? null : gained / tokensPerGpuHour,
    share: toBe > 0 ? gained / toBe : null,
    held,
    tokensPerGpuHour,
    comparedSeconds,
    windowSeconds: to - from,
  };
}
