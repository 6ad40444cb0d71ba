import { expect, test } from "vitest";
import { HOME, bounded, inSight, limits, panned, pointed, revealing, whole, zoomed } from "./camera";
import { alike } from "./fixture";
import { place } from "./layout";

const WINDOW = { width: 974, height: 670 };
const layout = place(alike(40, 50), WINDOW.width, WINDOW.height);

test("what is pointed at stays where it is when the map is zoomed", () => {
  const at = { x: 300, y: 200 };
  const after = pointed(zoomed(HOME, 3, at, layout, WINDOW), at);
  expect(after.x).toBeCloseTo(300);
  expect(after.y).toBeCloseTo(200);
});

test("nobody zooms further out than to all of it, or closer than to large cells", () => {
  expect(zoomed(HOME, 0.5, { x: 0, y: 0 }, layout, WINDOW)).toEqual(HOME);
  const { most } = limits(layout, WINDOW);
  expect(zoomed(HOME, 1e6, { x: 0, y: 0 }, layout, WINDOW).scale).toBe(most);
});

test("the map does not leave the window", () => {
  const closer = zoomed(HOME, 4, { x: 400, y: 300 }, layout, WINDOW);
  const corner = panned(closer, 1e6, 1e6, layout, WINDOW);
  expect([corner.x, corner.y]).toEqual([0, 0]);
  const other = panned(closer, -1e6, -1e6, layout, WINDOW);
  expect(other.x).toBeCloseTo(layout.width - WINDOW.width / 4);
  expect(other.y).toBeCloseTo(layout.height - WINDOW.height / 4);
});

test("a map that is too high is seen whole from further away", () => {
  const high = place(alike(1, 3_000), 300, 200);
  const window = { width: 300, height: 200 };
  expect(whole(high, window).scale * high.height).toBeCloseTo(200);
  expect(bounded(HOME, high, window)).toEqual(HOME);
});

test("at first all nodes are in sight, closer only some", () => {
  expect(inSight(HOME, layout, WINDOW)).toHaveLength(2_000);
  const some = inSight(zoomed(HOME, 10, { x: 0, y: 0 }, layout, WINDOW), layout, WINDOW);
  expect(some).toContain(0);
  expect(some.length).toBeLessThan(100);
});

test("what is out of sight is brought into it, and what is in sight moves nothing", () => {
  const closer = zoomed(HOME, 4, { x: 0, y: 0 }, layout, WINDOW);
  const there = revealing(closer, { x: 500, y: 300, width: 10, height: 10 }, layout, WINDOW);
  expect(there.x).toBeCloseTo(510 - WINDOW.width / 4);
  expect(there.y).toBeCloseTo(310 - WINDOW.height / 4);
  expect(revealing(closer, { x: 10, y: 10, width: 5, height: 5 }, layout, WINDOW)).toEqual(closer);
});
