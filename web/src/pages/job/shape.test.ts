import { expect, test } from "vitest";
import type { SeriesPoint } from "../../api/client";
import type { AllocationRecord } from "./asks";
import { isGap, measuredAt, realised, segments, spacingOf, standstill, track, valuesOf } from "./shape";

const at = (second: number) => new Date(second * 1_000).toISOString();

function point(second: number, step: number, more: Partial<SeriesPoint> = {}): SeriesPoint {
  return {
    at: at(second),
    generation: 1,
    step,
    samples_seen: step * 8,
    step_time_seconds: 1,
    throughput_tokens_per_second: 100,
    goodput_tokens_per_second: 100,
    gpus: 8,
    global_batch_sequences: 8,
    configuration: { layout: { dp: 8, tp: 1, pp: 1 }, global_batch_sequences: 8, micro_batch_sequences: 1 },
    ...more,
  };
}

function allocation(generation: number, granted: number, training: number | undefined, ended: number | undefined): AllocationRecord {
  return {
    job_id: "j",
    generation,
    gpus: 8,
    slices: [],
    revision: 0,
    cause: "",
    predicted_goodput_tokens_per_second: 100,
    configuration: point(0, 0).configuration,
    granted_at: at(granted),
    training_at: training === undefined ? null : at(training),
    ended_at: ended === undefined ? null : at(ended),
  };
}

test("steps that account for the time are no gap, however far apart they are told", () => {
  const often = [point(0, 10), point(10, 20), point(20, 30)];
  expect(spacingOf(often)).toBe(10);
  expect(isGap(often[0]!, often[1]!, 10)).toBe(false);
  const seldom = [point(0, 20, { step_time_seconds: 3 }), point(60, 40, { step_time_seconds: 3 })];
  expect(isGap(seldom[0]!, seldom[1]!, 60)).toBe(false);
});

test("time that no step accounts for is a gap, and so is another generation", () => {
  expect(isGap(point(0, 10), point(110, 20), 10)).toBe(true);
  expect(isGap(point(0, 10), point(10, 20, { generation: 2 }), 10)).toBe(true);
});

test("a gap is nothing between two lines", () => {
  const of = track([point(0, 10), point(10, 20), point(40, 12, { generation: 2 }), point(50, 22, { generation: 2 })], 100);
  expect(of.times).toEqual([0, 10, 25, 40, 50]);
  expect(valuesOf(of, (one) => one.step)).toEqual([10, 20, null, 12, 22]);
});

test("a point alone is drawn as long as it stands for", () => {
  const of = track([point(0, 10), point(10, 20), point(40, 12, { generation: 2 })], 100);
  expect(of.times).toEqual([0, 10, 25, 40, 50]);
  expect(track([point(0, 10)], 100).times).toEqual([0, 1]);
  expect(track([], 100).times).toEqual([]);
});

test("two generations in one interval keep their order", () => {
  const { times } = track([point(0, 10), point(10, 20), point(10, 5, { generation: 2 }), point(20, 15, { generation: 2 })], 100);
  expect(times).toEqual([...times].sort((one, other) => one - other));
  expect(new Set(times).size).toBe(times.length);
});

test("goodput is told by generation and by size", () => {
  const points = [
    point(0, 10, { goodput_tokens_per_second: 100 }),
    point(10, 20, { goodput_tokens_per_second: 200 }),
    point(20, 5, { generation: 2, gpus: 16, goodput_tokens_per_second: null }),
  ];
  expect(realised(points)).toEqual(new Map([[1, { goodput: 150, points: 2 }]]));
  expect(measuredAt(points)).toEqual(new Map([[8, 200]]));
});

test("an allocation starts, runs, and is parted where its batch changes", () => {
  const larger = { ...point(0, 0).configuration, global_batch_sequences: 16 };
  const points = [point(10, 10), point(20, 20), point(30, 30, { configuration: larger })];
  const parts = segments([allocation(1, 0, 8, 50)], points, 100);
  expect(parts.map(({ phase, from, to }) => [phase, from, to])).toEqual([
    ["starting", 0, 8],
    ["running", 8, 30],
    ["running", 30, 50],
  ]);
  expect(parts[2]!.configuration).toEqual(larger);
});

test("what never trained is starting, and what tells nothing runs", () => {
  expect(segments([allocation(1, 0, undefined, undefined)], [], 30).map((one) => one.phase)).toEqual(["starting"]);
  const silent = { ...allocation(1, 0, undefined, 20), configuration: null };
  expect(segments([silent], [], 30).map((one) => one.phase)).toEqual(["running"]);
});

test("a standstill lasts from one generation's end to the next one's first step", () => {
  expect(standstill(allocation(1, 0, 8, 50), allocation(2, 53, 91, undefined))).toEqual({ seconds: 41, waiting: 3 });
  expect(standstill(undefined, allocation(1, 0, 8, 50))).toBeUndefined();
});
