import { expect, test } from "vitest";
import { align, stack } from "./series";

const line = (points: [number, number][]) => ({
  name: "a",
  colour: "#000000",
  points: points.map(([at, value]) => ({ at, value })),
});

test("a silence is a gap, not a line", () => {
  const { rows } = align([line([[0, 5], [40, 7]])]);
  expect(rows[0]).toContain(null);
  expect(rows[0]!.at(-1)).toBe(7);
});

test("lines stack, and the topmost comes first", () => {
  const [times, top, bottom] = stack(align([line([[0, 5]]), line([[0, 2]])]));
  expect(times!.length).toBeGreaterThan(0);
  expect(bottom![0]).toBe(5);
  expect(top![0]).toBe(7);
});

test("nothing measured is an empty chart", () => {
  expect(stack(align([line([])]))).toEqual([[], []]);
});
