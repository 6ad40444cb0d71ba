import { expect, test } from "vitest";
import { areaPath, edges, linePath, runs, unknown } from "./stacked";

const plot = { x: (index: number) => index * 10, y: (value: number) => 100 - value };

test("layers stand on each other, and what is not known adds nothing", () => {
  expect(edges([[1, null], [2, 3]], 2)).toEqual([
    { low: [0, 0], high: [1, 0] },
    { low: [1, 0], high: [3, 3] },
  ]);
});

test("a gap ends one run and begins another", () => {
  expect(runs([null, 1, 2, null, 3])).toEqual([[1, 3], [4, 5]]);
  expect(runs([])).toEqual([]);
});

test("steps that nobody knows anything of are found", () => {
  expect(unknown([[1, null, null, 2], [null, null, null, 3]], 4)).toEqual([[1, 3]]);
  expect(unknown([[1, 2]], 2)).toEqual([]);
});

test("a single step has an extent", () => {
  expect(linePath([5], plot)).toBe("M0.0 95.0V95.0H10.0");
  expect(areaPath([5], [0], [5], plot)).toBe("M0.0 95.0V95.0H10.0V100.0H0.0Z");
});
