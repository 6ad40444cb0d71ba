import { expect, test } from "vitest";
import { leastWidth } from "./widths";

const NODES = [{}, { width: "112px" }, { width: "22%", from: "desktop" }, { width: "110px", from: "tablet" }, { width: "28%", from: "tablet" }] as const;

test("columns of a table keep their pixels, and those without a width so much that they can be read", () => {
  expect(leastWidth([{}, { width: "60px" }, {}], [])).toBe(130 + 60 + 96);
});

test("columns that windows do without take nothing", () => {
  expect(leastWidth(NODES, ["tablet", "desktop", "wide"])).toBe(130 + 112);
});

test("columns with a share leave the others what they need", () => {
  expect(leastWidth(NODES, ["wide"]) * (1 - 0.22 - 0.28)).toBeCloseTo(130 + 112 + 110);
  expect(leastWidth(NODES, ["desktop", "wide"]) * (1 - 0.28)).toBeGreaterThanOrEqual(130 + 112 + 110);
});

test("a column with a small share keeps what can be read", () => {
  expect(leastWidth([{}, { width: "1%" }], [])).toBe(130 + 96);
});
