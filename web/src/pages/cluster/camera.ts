// What part of the map is seen, and how large. Pure.

import type { Layout, Spot } from "./layout";

export interface Camera {
  /** 1: as the map was laid out. */
  scale: number;
  /** What of the map stands at the upper left. */
  x: number;
  y: number;
}

export interface Size {
  width: number;
  height: number;
}

/** A cell's side when it is zoomed in as far as that goes. */
const CLOSEST_CELL = 44;

/** As the map was laid out: all of it, where that is possible. */
export const HOME: Camera = { scale: 1, x: 0, y: 0 };

export function limits(layout: Layout, window: Size): { least: number; most: number } {
  return { least: Math.min(1, window.height / Math.max(1, layout.height)), most: Math.max(1, CLOSEST_CELL / layout.cell) };
}

/** Never past the map's edges. */
export function bounded(camera: Camera, layout: Layout, window: Size): Camera {
  const { least, most } = limits(layout, window);
  const scale = clamp(camera.scale, least, most);
  return {
    scale,
    x: clamp(camera.x, 0, Math.max(0, layout.width - window.width / scale)),
    y: clamp(camera.y, 0, Math.max(0, layout.height - window.height / scale)),
  };
}

/** So far away that all of the map is seen. */
export function whole(layout: Layout, window: Size): Camera {
  return bounded({ ...HOME, scale: 0 }, layout, window);
}

/** Closer or further; what is at `at` (of the window) stays there. */
export function zoomed(camera: Camera, factor: number, at: Spot, layout: Layout, window: Size): Camera {
  const { least, most } = limits(layout, window);
  const scale = clamp(camera.scale * factor, least, most);
  const shift = 1 / camera.scale - 1 / scale;
  return bounded({ scale, x: camera.x + at.x * shift, y: camera.y + at.y * shift }, layout, window);
}

/** Moved by as much of the window. */
export function panned(camera: Camera, dx: number, dy: number, layout: Layout, window: Size): Camera {
  return bounded({ ...camera, x: camera.x - dx / camera.scale, y: camera.y - dy / camera.scale }, layout, window);
}

/** Moved as little as brings a part of the map into sight. */
export function revealing(camera: Camera, part: Spot & Size, layout: Layout, window: Size): Camera {
  const along = (seen: number, span: number, from: number, length: number) => Math.min(from, Math.max(seen, from + length - span));
  const x = along(camera.x, window.width / camera.scale, part.x, part.width);
  const y = along(camera.y, window.height / camera.scale, part.y, part.height);
  return bounded({ ...camera, x, y }, layout, window);
}

/** What of the map stands at a place of the window. */
export function pointed(camera: Camera, at: Spot): Spot {
  return { x: camera.x + at.x / camera.scale, y: camera.y + at.y / camera.scale };
}

/** Nodes of whose cards something is in sight. */
export function inSight(camera: Camera, layout: Layout, window: Size): number[] {
  const [right, bottom] = [camera.x + window.width / camera.scale, camera.y + window.height / camera.scale];
  const seen: number[] = [];
  for (let node = 0; node < layout.cardX.length; node++) {
    const { cardWidth, cardHeight } = layout.blocks[layout.block[node]!]!;
    const [x, y] = [layout.cardX[node]!, layout.cardY[node]!];
    if (x < right && y < bottom && x + cardWidth > camera.x && y + cardHeight > camera.y) seen.push(node);
  }
  return seen;
}

function clamp(value: number, least: number, most: number): number {
  return Math.max(least, Math.min(most, value));
}
