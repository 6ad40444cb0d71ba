// Where an arrow key takes the cursor: to the next GPU of the card, and from its edge to the card that stands nearest that way. Pure.

import type { Layout, Shape } from "./layout";

const STEPS: Record<string, readonly [number, number]> = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
/** How much worse a step aside is than the same way ahead. */
const ASIDE = 4;

interface Placed extends Shape {
  /** Of each GPU: its node. */
  node: ArrayLike<number>;
}

/** The place that a key leads to, `undefined` where the key is none of the cursor's. */
export function moved(layout: Layout, shape: Placed, cell: number, key: string): number | undefined {
  const cells = shape.node.length;
  if (cells === 0) return undefined;
  if (key === "Home") return 0;
  if (key === "End") return cells - 1;
  const node = shape.node[cell]!;
  if (key === "PageDown" || key === "PageUp") return otherDomain(layout, shape, node, key === "PageDown" ? 1 : -1) ?? cell;
  const step = STEPS[key];
  if (!step) return undefined;
  const [dx, dy] = step;
  const { across } = layout.blocks[layout.block[node]!]!;
  const { first, gpus } = shape.nodes[node]!;
  const [column, row] = [(cell - first) % across, Math.floor((cell - first) / across)];
  const next = (row + dy) * across + column + dx;
  if (column + dx >= 0 && column + dx < across && next >= 0 && next < gpus) return first + next;
  const card = nearest(layout, shape, node, dx, dy);
  return card === undefined ? cell : entered(layout, shape, card, dx, dy, column, row);
}

/** The first GPU of the domain before or after. */
function otherDomain(layout: Layout, shape: Shape, node: number, step: 1 | -1): number | undefined {
  for (let place = layout.block[node]! + step; layout.blocks[place]; place += step) {
    const { first, count } = layout.blocks[place]!;
    for (let at = first; at < first + count; at++) if (shape.nodes[at]!.gpus > 0) return shape.nodes[at]!.first;
  }
  return undefined;
}

function centre(layout: Layout, node: number): [number, number] {
  const { cardWidth, cardHeight } = layout.blocks[layout.block[node]!]!;
  return [layout.cardX[node]! + cardWidth / 2, layout.cardY[node]! + cardHeight / 2];
}

function nearest(layout: Layout, shape: Shape, from: number, dx: number, dy: number): number | undefined {
  const [x, y] = centre(layout, from);
  let best: number | undefined;
  let least = Number.POSITIVE_INFINITY;
  shape.nodes.forEach(({ gpus }, node) => {
    const [itsX, itsY] = centre(layout, node);
    const ahead = (itsX - x) * dx + (itsY - y) * dy;
    if (gpus === 0 || ahead <= layout.cell / 2) return;
    const cost = ahead + ASIDE * Math.abs((itsX - x) * dy + (itsY - y) * dx);
    if (cost >= least) return;
    least = cost;
    best = node;
  });
  return best;
}

/** The GPU of a card that is reached first from that side. */
function entered(layout: Layout, shape: Shape, card: number, dx: number, dy: number, column: number, row: number): number {
  const { across, down } = layout.blocks[layout.block[card]!]!;
  const { first, gpus } = shape.nodes[card]!;
  const toColumn = dx > 0 ? 0 : dx < 0 ? across - 1 : Math.min(column, across - 1);
  const toRow = dy > 0 ? 0 : dy < 0 ? down - 1 : Math.min(row, down - 1);
  return first + Math.min(gpus - 1, toRow * across + toColumn);
}
