import { expect, test } from "vitest";
import { onSteps, stepsOf, stepsSince } from "./grid";

test("steps begin at whole multiples of their length", () => {
  expect(stepsOf("1970-01-01T00:01:30Z", "1970-01-01T00:04:00Z", 60)).toEqual([60, 120, 180]);
});

test("a step without a point is a gap, and a longer step holds for all times within it", () => {
  const points = [
    { at: "1970-01-01T00:00:00Z", made: 5 },
    { at: "1970-01-01T00:04:00Z", made: 0 },
  ];
  expect(onSteps(points, 120, [0, 60, 120, 180, 240], (point) => point.made)).toEqual([5, 5, null, null, 0]);
});

test("steps begin with what is known, where most would lie before it", () => {
  const [from, to] = ["1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z"];
  expect(stepsSince(from, to, 60, [{ at: "1970-01-01T00:35:00Z" }])[0]).toBe(35 * 60);
  expect(stepsSince(from, to, 60, [{ at: "1970-01-01T00:55:00Z" }])[0]).toBe(48 * 60);
  expect(stepsSince(from, to, 60, [{ at: "1970-01-01T00:20:00Z" }])[0]).toBe(0);
  expect(stepsSince(from, to, 60, [])).toHaveLength(60);
});
