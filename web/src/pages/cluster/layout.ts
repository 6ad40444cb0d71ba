// Where everything stands on the map: domains side by side, in each its nodes as cards, on each card its GPUs as cells. And what stands where
// somebody points. In pixels as they are before anybody zooms: as large as lets all of it be seen at once. Pure.

/** What has to be placed. */
export interface Shape {
  domains: readonly { first: number; count: number }[];
  nodes: readonly { first: number; gpus: number }[];
}

export interface Block {
  x: number;
  y: number;
  width: number;
  height: number;
  /** Its first node's place among all, and how many it has. */
  first: number;
  count: number;
  /** Cards in a row. */
  columns: number;
  /** Cells in a row of a card, and rows. */
  across: number;
  down: number;
  cardWidth: number;
  cardHeight: number;
}

export interface Layout extends Sizes {
  width: number;
  height: number;
  blocks: Block[];
  /** Of each card: its corner, and its block. */
  cardX: Float32Array;
  cardY: Float32Array;
  block: Uint16Array;
}

interface Sizes {
  /** A GPU's side. */
  cell: number;
  /** Between cells. */
  gap: number;
  /** Around the cells of a card. */
  pad: number;
  /** Above them, where the node's name stands when it is large enough. */
  strip: number;
  /** Between cards, and around all of a block. */
  apart: number;
  /** Above a block's cards, for the domain's name. */
  header: number;
}

export const LARGEST_CELL = 44;
const SMALLEST_CELL = 3;
const HEADER = 18;
const BETWEEN_BLOCKS = 6;
/** Blocks side by side, at most, that are tried. */
const ABREAST = 12;
/** Where domains hardly have more than a node each, their names would be most of the map. */
const NODES_FOR_A_HEADER = 2;
const FEW_DOMAINS = 24;

export function place(shape: Shape, width: number, height: number): Layout {
  const header = shape.domains.length <= FEW_DOMAINS || shape.nodes.length >= shape.domains.length * NODES_FOR_A_HEADER ? HEADER : 0;
  for (let cell = LARGEST_CELL; cell > SMALLEST_CELL; cell--) {
    const packed = densest(shape, sizes(cell, header), width);
    if (packed.height <= height) return spread(shape, packed, sizes(cell, header), width);
  }
  const smallest = sizes(SMALLEST_CELL, header);
  return spread(shape, densest(shape, smallest, width), smallest, width);
}

function sizes(cell: number, header: number): Sizes {
  return {
    cell,
    gap: Math.max(1, Math.round(cell / 8)),
    pad: Math.max(1, Math.round(cell * 0.3)),
    strip: Math.max(1, Math.round(cell * 0.75)),
    apart: Math.max(1, Math.round(cell * 0.35)),
    header,
  };
}

interface Packed {
  blocks: Block[];
  height: number;
}

/** The lowest of the ways to stand so many blocks side by side. */
function densest(shape: Shape, of: Sizes, width: number): Packed {
  let best = pack(shape, of, width, 1);
  for (let abreast = 2; abreast <= Math.min(ABREAST, shape.domains.length); abreast++) {
    const packed = pack(shape, of, width, abreast);
    if (packed.height < best.height) best = packed;
  }
  return best;
}

/** Blocks from left to right, and in a new row where the next finds no room. */
function pack(shape: Shape, of: Sizes, width: number, abreast: number): Packed {
  const share = (width - (abreast - 1) * BETWEEN_BLOCKS) / abreast;
  let [x, y, row] = [0, 0, 0];
  const blocks = shape.domains.map(({ first, count }) => {
    const block = blockOf(shape, of, first, count, share);
    if (x > 0 && x + block.width > width) {
      y += row + BETWEEN_BLOCKS;
      x = row = 0;
    }
    const placed = { ...block, x, y };
    x += block.width + BETWEEN_BLOCKS;
    row = Math.max(row, block.height);
    return placed;
  });
  return { blocks, height: y + row };
}

function blockOf(shape: Shape, of: Sizes, first: number, count: number, share: number): Block {
  let most = 1;
  for (let node = first; node < first + count; node++) most = Math.max(most, shape.nodes[node]!.gpus);
  const across = most <= 4 ? most : most <= 8 ? 4 : 8;
  const down = Math.ceil(most / across);
  const cardWidth = across * of.cell + (across - 1) * of.gap + 2 * of.pad;
  const cardHeight = of.strip + down * of.cell + (down - 1) * of.gap + of.pad;
  const fitting = Math.floor((share - of.apart) / (cardWidth + of.apart));
  const columns = Math.max(1, Math.min(count, fitting));
  const rows = Math.ceil(count / columns);
  return {
    ...{ x: 0, y: 0, first, count, columns, across, down, cardWidth, cardHeight },
    width: columns * (cardWidth + of.apart) + of.apart,
    height: of.header + rows * (cardHeight + of.apart) + of.apart,
  };
}

function spread(shape: Shape, { blocks, height }: Packed, of: Sizes, width: number): Layout {
  const nodes = shape.nodes.length;
  const layout: Layout = {
    ...of,
    width: Math.max(width, ...blocks.map((block) => block.x + block.width)),
    height,
    blocks,
    cardX: new Float32Array(nodes),
    cardY: new Float32Array(nodes),
    block: new Uint16Array(nodes),
  };
  blocks.forEach((block, place) => {
    for (let at = 0; at < block.count; at++) {
      const node = block.first + at;
      layout.cardX[node] = block.x + of.apart + (at % block.columns) * (block.cardWidth + of.apart);
      layout.cardY[node] = block.y + of.header + of.apart + Math.floor(at / block.columns) * (block.cardHeight + of.apart);
      layout.block[node] = place;
    }
  });
  return layout;
}

export interface Spot {
  x: number;
  y: number;
}

/** The corner of a node's GPU, by its place on the card. */
export function cellAt(layout: Layout, node: number, place: number): Spot {
  const { across } = layout.blocks[layout.block[node]!]!;
  const step = layout.cell + layout.gap;
  return {
    x: layout.cardX[node]! + layout.pad + (place % across) * step,
    y: layout.cardY[node]! + layout.strip + Math.floor(place / across) * step,
  };
}

export interface Hit {
  /** Place of a domain among all. */
  domain: number;
  node?: number;
  /** Place of a GPU among all. Anywhere on a card the nearest is meant. */
  cell?: number;
}

export function hit(layout: Layout, shape: Shape, { x, y }: Spot): Hit | undefined {
  const domain = layout.blocks.findIndex((one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + one.height);
  const block = layout.blocks[domain];
  if (!block) return undefined;
  const { apart, header } = layout;
  const column = Math.floor((x - block.x - apart) / (block.cardWidth + apart));
  const row = Math.floor((y - block.y - header - apart) / (block.cardHeight + apart));
  const at = row * block.columns + column;
  if (column < 0 || row < 0 || column >= block.columns || at >= block.count) return { domain };
  const node = block.first + at;
  const [left, top] = [x - layout.cardX[node]!, y - layout.cardY[node]!];
  if (left > block.cardWidth || top > block.cardHeight) return { domain };
  const { first, gpus } = shape.nodes[node]!;
  if (gpus === 0) return { domain, node };
  const step = layout.cell + layout.gap;
  const across = within(Math.floor((left - layout.pad) / step), block.across);
  const down = within(Math.floor((top - layout.strip) / step), block.down);
  return { domain, node, cell: first + within(down * block.across + across, gpus) };
}

/** The nearest of 0, 1, … that is below `count`. */
function within(value: number, count: number): number {
  return Math.max(0, Math.min(count - 1, value));
}
