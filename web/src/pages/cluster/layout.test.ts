import { expect, test } from "vitest";
import { alike, shapeOf } from "./fixture";
import { LARGEST_CELL, type Layout, type Shape, cellAt, hit, place } from "./layout";

const MIXED = shapeOf([[8, 5, 1], [16, 16], [2, 2, 2, 2, 2, 2, 2], [0, 8]]);

function boxes(layout: Layout) {
  return [...layout.cardX].map((x, node) => {
    const { cardWidth, cardHeight } = layout.blocks[layout.block[node]!]!;
    return { x, y: layout.cardY[node]!, width: cardWidth, height: cardHeight };
  });
}

type Box = ReturnType<typeof boxes>[number];

function overlap(one: Box, other: Box): boolean {
  return one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;
}

function overlaps(all: readonly Box[]): number {
  return all.reduce((sum, one, at) => sum + all.slice(at + 1).filter((other) => overlap(one, other)).length, 0);
}

test("two thousand nodes of eight GPUs are seen at once", () => {
  const layout = place(alike(40, 50), 974, 670);
  expect(layout.cell).toBeGreaterThanOrEqual(3);
  expect(layout.height).toBeLessThanOrEqual(670);
  expect(layout.width).toBeLessThanOrEqual(974);
});

test("few nodes are as large as cells get", () => {
  expect(place(alike(1, 4), 974, 670).cell).toBe(LARGEST_CELL);
});

test("what cannot be seen at once is higher than the window, and no smaller than cells get", () => {
  const layout = place(alike(1, 3_000), 300, 200);
  expect(layout.cell).toBe(3);
  expect(layout.height).toBeGreaterThan(200);
});

test("nothing lies upon anything else", () => {
  for (const [shape, width] of [[MIXED, 600], [MIXED, 90], [alike(5, 7), 400]] as [Shape, number][]) {
    const layout = place(shape, width, 300);
    expect(overlaps(boxes(layout))).toBe(0);
    expect(overlaps(layout.blocks)).toBe(0);
    boxes(layout).forEach((card, node) => {
      const block = layout.blocks[layout.block[node]!]!;
      expect(card.x).toBeGreaterThanOrEqual(block.x);
      expect(card.x + card.width).toBeLessThanOrEqual(block.x + block.width);
      expect(card.y + card.height).toBeLessThanOrEqual(block.y + block.height);
    });
  }
});

test("who points at a GPU means that one", () => {
  for (const width of [600, 90]) {
    const layout = place(MIXED, width, 300);
    MIXED.node.forEach((node, cell) => {
      const corner = cellAt(layout, node, cell - MIXED.nodes[node]!.first);
      const centre = { x: corner.x + layout.cell / 2, y: corner.y + layout.cell / 2 };
      expect(hit(layout, MIXED, centre)).toEqual({ domain: layout.block[node], node, cell });
    });
  }
});

test("who points at a card means its nearest GPU, beside it only the domain, and outside nothing", () => {
  const layout = place(MIXED, 600, 300);
  const [x, y] = [layout.cardX[1]!, layout.cardY[1]!];
  expect(hit(layout, MIXED, { x: x + 0.5, y: y + 0.5 })).toEqual({ domain: 0, node: 1, cell: 8 });
  expect(hit(layout, MIXED, { x, y: layout.blocks[0]!.y + 1 })).toEqual({ domain: 0 });
  expect(hit(layout, MIXED, { x: -1, y: 5 })).toBeUndefined();
  // A node without GPUs is one all the same.
  const bare = MIXED.nodes.findIndex((node) => node.gpus === 0);
  expect(hit(layout, MIXED, { x: layout.cardX[bare]! + 1, y: layout.cardY[bare]! + 1 })).toEqual({ domain: 3, node: bare });
});

test("where domains have hardly more than a node each, their names take no room", () => {
  expect(place(alike(200, 1), 974, 670).header).toBe(0);
  expect(place(alike(20, 1), 974, 670).header).toBeGreaterThan(0);
});
