import { expect, test } from "vitest";
import { account, lost } from "./account";
import type { ClusterPoint, Usage } from "./asked";

const HOUR = 3_600_000;
const at = (hours: number) => new Date(hours * HOUR).toISOString();

function point(hours: number, figures: Partial<ClusterPoint>): ClusterPoint {
  const by = { broken: 1, idle_waiting: 2, idle_no_demand: 1, training: 5, starting: 1 };
  const rest = { gpus_by_activity: by, goodput_tokens_per_second: 0, gpus_training: 0, jobs_running: 0, jobs_waiting: 0 };
  return { at: at(hours), gpus_total: 10, gpus_healthy: 9, gpus_busy: 6, gpus_waited_for: 2, ...rest, ...figures };
}

function usage(steps: { hours: number; healthy?: number; rows: [string, number][] }[]): Usage {
  const row = ([cause, gpu_hours]: [string, number]) => ({ cause, gpu_hours, jobs: 1 });
  const told = steps.map(({ hours, healthy, rows }) => ({ at: at(hours), items: rows.map(row), healthy_gpu_hours: healthy ?? null }));
  const items = steps.flatMap(({ rows }) => rows.map(row));
  const total_gpu_hours = items.reduce((sum, { gpu_hours }) => sum + gpu_hours, 0);
  return { from: at(0), to: at(2), group_by: ["cause"], items, total_gpu_hours, step_seconds: 3_600, steps: told };
}

const parts = (of: ReturnType<typeof account>) => Object.fromEntries(of.parts.map(({ cause, gpuHours }) => [cause, gpuHours]));

test("the parts add up to all GPUs, with what nobody can account for", () => {
  const split = account(usage([{ hours: 0, rows: [["useful", 4], ["rework", 1]] }]), [point(0, {})]);
  expect(parts(split)).toMatchObject({ broken: 1, idle_waiting: 2, idle_no_demand: 1, free: 0, useful: 4, rework: 1, unaccounted: 1 });
  expect(split.total).toBe(10);
  expect(split.parts.reduce((sum, { gpuHours }) => sum + gpuHours, 0)).toBeCloseTo(split.total);
});

test("idle GPUs of reserved nodes are a part of their own", () => {
  const by = { broken: 1, idle_waiting: 1, reserved: 2, training: 6 };
  const split = account(usage([{ hours: 0, rows: [["useful", 6]] }]), [point(0, { gpus_by_activity: by })]);
  expect(parts(split)).toMatchObject({ broken: 1, idle_waiting: 1, reserved: 2, useful: 6, unaccounted: 0 });
});

test("of a time when nobody counted why GPUs were idle only that is told", () => {
  const split = account(usage([{ hours: 0, rows: [["useful", 6]] }]), [point(0, { gpus_by_activity: null })]);
  expect(parts(split)).toMatchObject({ broken: 1, free: 3, idle_waiting: 0, useful: 6, unaccounted: 0 });
});

test("time without figures is none of the sum", () => {
  const split = account(usage([{ hours: 0, rows: [["useful", 6]] }, { hours: 1, rows: [["useful", 5]] }]), [point(0, {})]);
  expect([split.total, split.unsampled, split.sampledSeconds, split.windowSeconds]).toEqual([10, 5, 3_600, 7_200]);
  expect(parts(split)).toMatchObject({ useful: 6, unaccounted: 0 });
});

test("of the past only healthy GPUs are known", () => {
  const split = account(usage([{ hours: 0, healthy: 9, rows: [["useful", 6]] }, { hours: 1, rows: [["useful", 5]] }]), undefined);
  expect([split.of, split.total, split.unsampled]).toEqual(["healthy", 9, 5]);
  expect(parts(split)).toMatchObject({ free: 3, useful: 6, unaccounted: 0 });
});

test("what was lost is what jobs held without getting on", () => {
  expect(lost(usage([{ hours: 0, rows: [["useful", 6], ["starting", 2], ["rework", 1]] }]))).toEqual({
    gpuHours: 3,
    causes: [["starting", 2], ["rework", 1]],
  });
});
