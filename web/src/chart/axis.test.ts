import { expect, test } from "vitest";
import { logTicks, timeTicks, valueTicks } from "./axis";

test("values are marked at round numbers from zero on", () => {
  expect(valueTicks(9)).toEqual([0, 5]);
  expect(valueTicks(400)).toEqual([0, 100, 200, 300, 400]);
  expect(valueTicks(0)).toEqual([0]);
});

test("powers are marked with their halves and fifths, as long as they are few", () => {
  expect(logTicks(0.4, 3)).toEqual([0.5, 1, 2]);
  expect(logTicks(1, 1e6)).toEqual([1, 10, 100, 1e3, 1e4, 1e5, 1e6]);
  expect(logTicks(0, 5)).toEqual([]);
});

test("times are no more than fit", () => {
  const ticks = timeTicks(0, 86_400, 8);
  expect(ticks.length).toBeLessThanOrEqual(8);
  expect(ticks[1]!.at - ticks[0]!.at).toBe(14_400);
});
