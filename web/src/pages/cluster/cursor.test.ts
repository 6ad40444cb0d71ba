import { expect, test } from "vitest";
import { moved } from "./cursor";
import { shapeOf } from "./fixture";
import { place } from "./layout";

function cursor(domains: number[][]) {
  const shape = shapeOf(domains);
  const layout = place(shape, 974, 670);
  return (cell: number, key: string) => moved(layout, shape, cell, key);
}

test("arrows go from GPU to GPU, and from a card's edge to the card beside it", () => {
  const from = cursor([[8, 8]]);
  expect(from(0, "ArrowRight")).toBe(1);
  expect(from(0, "ArrowDown")).toBe(4);
  expect(from(3, "ArrowRight")).toBe(8);
  expect(from(7, "ArrowRight")).toBe(12);
  expect(from(12, "ArrowLeft")).toBe(7);
});

test("at the map's edge the cursor stays", () => {
  const from = cursor([[8, 8]]);
  expect(from(0, "ArrowUp")).toBe(0);
  expect(from(0, "ArrowLeft")).toBe(0);
  expect(from(15, "ArrowRight")).toBe(15);
});

test("a row that is not full has an edge of its own", () => {
  const from = cursor([[5]]);
  expect(from(0, "ArrowDown")).toBe(4);
  expect(from(1, "ArrowDown")).toBe(1);
  expect(from(4, "ArrowRight")).toBe(4);
});

test("Home, End and the page keys go far, other keys are not the cursor's", () => {
  const from = cursor([[8, 8], [0, 4]]);
  expect(from(9, "Home")).toBe(0);
  expect(from(9, "End")).toBe(19);
  // The second domain's first node has no GPUs.
  expect(from(9, "PageDown")).toBe(16);
  expect(from(17, "PageUp")).toBe(0);
  expect(from(17, "PageDown")).toBe(17);
  expect(from(0, "x")).toBeUndefined();
});

test("where there are no GPUs there is no cursor", () => {
  expect(cursor([[0]])(0, "ArrowRight")).toBeUndefined();
});
