import { expect, test } from "vitest";
import { alone, gaps } from "./gaps";

test("a gap lasts from what is known before to what is known next", () => {
  expect(gaps([0, 10, 20, 30, 40], [[1, 1, null, null, 1]], 0, 40)).toEqual([[10, 40]]);
  expect(gaps([0, 10, 20], [[1, null, 1], [null, 5, null]], 0, 20)).toEqual([]);
});

test("what is missing before and after counts where it is more than the next measurement", () => {
  const times = [100, 110, 120, 130];
  const line = [1, 2, 3, 4];
  expect(gaps(times, [line], 100, 145)).toEqual([]);
  expect(gaps(times, [line], 0, 200)).toEqual([[0, 100], [130, 200]]);
});

test("where nothing is known all is a gap", () => {
  expect(gaps([0, 10], [[null, null]], 0, 10)).toEqual([[0, 10]]);
  expect(gaps([], [], 0, 0)).toEqual([]);
});

test("values without neighbours are found", () => {
  expect(alone([1, null, 2, 3, null, 4])).toEqual([0, 5]);
});
