import { expect, test } from "vitest";
import type { Usage } from "../overview/asked";
import type { History } from "./asked";
import { BASELINE_NAMES } from "./baselines";
import { gainOf } from "./gain";

const at = (hours: number) => new Date(hours * 3_600_000).toISOString();

function history(points: [hours: number, goodput: number, baseline: number | null][]): History {
  const told = points.map(([hours, goodput, baseline]) => ({ at: at(hours), goodput_tokens_per_second: goodput, baseline_tokens_per_second: baseline }));
  return { from: at(0), to: at(3), group: "cluster", left_out: 0, step_seconds: 3_600, series: [{ points: told }] };
}

function usage(held: [hours: number, gpuHours: number][]): Usage {
  const steps = held.map(([hours, gpu_hours]) => ({ at: at(hours), items: [{ cause: "useful", gpu_hours, jobs: 1 }] }));
  return { from: at(0), to: at(3), group_by: ["cause"], items: [], total_gpu_hours: 0, step_seconds: 3_600, steps };
}

test("a gain is priced at what a GPU-hour made within the window", () => {
  const gain = gainOf(history([[0, 100, 80], [1, 100, 120], [2, 100, 50]]), usage([[0, 10], [1, 10], [2, 10]]), "static_split");
  expect(gain.beyond).toEqual([20, -20, 50]);
  expect(gain.tokensPerGpuHour).toBe(36_000);
  expect(gain.running).toEqual([2, 0, 5]);
  expect(gain.gpuHours).toBe(5);
  expect(gain.share).toBeCloseTo(0.2);
});

test("where nothing was worked out there is a gap, and nothing is gained or lost", () => {
  const gain = gainOf(history([[0, 100, 80], [1, 100, null]]), usage([[0, 10], [1, 10], [2, 10]]), "static_split");
  expect(gain.beyond).toEqual([20, null, null]);
  expect([gain.held, gain.comparedSeconds, gain.windowSeconds]).toEqual([20, 3_600, 10_800]);
});

test("without a price there are no GPU-hours", () => {
  const gain = gainOf(history([[0, 0, 0]]), usage([]), "static_split");
  expect([gain.gpuHours, gain.share, gain.tokensPerGpuHour]).toEqual([null, null, null]);
});

test("each baseline is held against by its own figures", () => {
  const told = history([[0, 100, 80]]);
  const [point] = told.series[0]!.points;
  Object.assign(point!, { first_come_tokens_per_second: 40, throughput_only_tokens_per_second: 125 });
  const gains = BASELINE_NAMES.map((name) => gainOf(told, usage([[0, 10]]), name).beyond[0]);
  expect(gains).toEqual([20, 60, -25]);
});
