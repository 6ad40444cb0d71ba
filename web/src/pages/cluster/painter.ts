// Paints the map: the cells on one canvas, what is pointed at on another above it, so that pointing never paints the cells again. Of new data only
// cards that look different are painted, and never what is out of sight. All within one frame of the browser.

import { type ReservationIndex, phaseOfNode } from "../../lib/reservation";
import { type Camera, HOME, type Size, inSight } from "./camera";
import type { Fleet, FleetNode } from "./fleet";
import { type Layout, type Spot, cellAt } from "./layout";
import type { Look, Texture, Theme } from "./palette";
import { type Mark, glyph, shortened, textures } from "./strokes";

export interface Scene {
  fleet: Fleet;
  layout: Layout;
  /** Number of each GPU's look. */
  look: Uint8Array;
  looks: readonly Look[];
  theme: Theme;
  /** Those with a 0 are painted pale. */
  admitted: Uint8Array | undefined;
  reservations: ReservationIndex;
}

export interface Pointed {
  /** Place of a job: all else is dimmed. */
  job?: number | undefined;
  /** Places of a GPU and of a node, with a line around them. */
  cell?: number | undefined;
  node?: number | undefined;
}

/** Sides of cells from which on there is room for a cross, a texture, an index; and a strip's height that has room for a name. In CSS pixels. */
const CROSS_FROM = 6;
const TEXTURE_FROM = 9;
const INDEX_FROM = 15;
const NAME_FROM = 13;
const PALE = 0.16;
const FONT = "system-ui, sans-serif";

export class Painter {
  private readonly cells: CanvasRenderingContext2D;
  private readonly above: CanvasRenderingContext2D;
  private scene: Scene | undefined;
  private pointed: Pointed = {};
  private window: Size = { width: 0, height: 0 };
  private camera = HOME;
  private ratio = 1;
  private textures = new Map<Texture, CanvasPattern>();
  /** What the next frame paints. */
  private stale: "all" | Set<number> = new Set();
  private staleAbove = false;
  private frame = 0;

  constructor(cells: HTMLCanvasElement, above: HTMLCanvasElement) {
    this.cells = cells.getContext("2d")!;
    this.above = above.getContext("2d")!;
  }

  stop() {
    cancelAnimationFrame(this.frame);
  }

  resize(window: Size) {
    this.window = window;
    this.ratio = devicePixelRatio || 1;
    for (const { canvas } of [this.cells, this.above]) {
      canvas.width = Math.round(window.width * this.ratio);
      canvas.height = Math.round(window.height * this.ratio);
    }
    this.all();
  }

  aim(camera: Camera) {
    this.camera = camera;
    this.all();
  }

  show(scene: Scene) {
    const before = this.scene;
    this.scene = scene;
    if (before?.theme !== scene.theme) this.textures = textures(this.cells, scene.theme);
    if (!before || before.layout !== scene.layout || before.looks !== scene.looks || before.admitted !== scene.admitted) return this.all();
    if (this.stale !== "all") for (const node of changed(before, scene)) this.stale.add(node);
    // Whose cells were lit may have got others.
    this.staleAbove ||= this.pointed.job !== undefined;
    this.ask();
  }

  point(pointed: Pointed) {
    this.pointed = pointed;
    this.staleAbove = true;
    this.ask();
  }

  private all() {
    this.stale = "all";
    this.staleAbove = true;
    this.ask();
  }

  private ask() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (this.scene) this.paint(this.scene);
    });
  }

  private paint(scene: Scene) {
    const seen = inSight(this.camera, scene.layout, this.window);
    if (this.stale === "all") {
      this.cells.clearRect(0, 0, this.cells.canvas.width, this.cells.canvas.height);
      this.paintDomains(scene);
      for (const node of seen) this.paintCard(scene, node);
    } else if (this.stale.size > 0) {
      for (const node of seen) if (this.stale.has(node)) this.paintCard(scene, node);
    }
    this.stale = new Set();
    if (this.staleAbove) this.paintAbove(scene, seen);
    this.staleAbove = false;
  }

  /** A length, and a corner, in the canvas's own pixels: whole ones, so that edges are sharp. */
  private long(length: number): number {
    return length * this.camera.scale * this.ratio;
  }

  private box(at: Spot, width: number, height: number): [number, number, number, number] {
    const x = Math.round(this.long(at.x - this.camera.x));
    const y = Math.round(this.long(at.y - this.camera.y));
    return [x, y, Math.round(this.long(at.x + width - this.camera.x)) - x, Math.round(this.long(at.y + height - this.camera.y)) - y];
  }

  private paintDomains({ fleet, layout, theme }: Scene) {
    const ctx = this.cells;
    ctx.lineWidth = this.ratio;
    ctx.strokeStyle = theme.line;
    ctx.fillStyle = theme.muted;
    const size = 11 * this.ratio;
    ctx.font = `${size}px ${FONT}`;
    ctx.textBaseline = "alphabetic";
    ctx.textAlign = "left";
    layout.blocks.forEach((block, place) => {
      const [x, y, width, height] = this.box(block, block.width, block.height);
      if (x > ctx.canvas.width || y > ctx.canvas.height || x + width < 0 || y + height < 0) return;
      ctx.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
      if (layout.header === 0) return;
      const { name, count } = fleet.domains[place]!;
      const words = shortened(`${name} · ${count} ${count === 1 ? "node" : "nodes"}`, Math.floor((width - size) / (size * 0.55)));
      ctx.fillText(words, x + size / 2, y + this.long(layout.header) - size * 0.3);
    });
  }

  private paintCard({ fleet, layout, look, looks, theme, admitted, reservations }: Scene, node: number) {
    const ctx = this.cells;
    const { name, first, gpus, health } = fleet.nodes[node]!;
    const { cardWidth, cardHeight, across } = layout.blocks[layout.block[node]!]!;
    const card = this.box({ x: layout.cardX[node]!, y: layout.cardY[node]! }, cardWidth, cardHeight);
    ctx.fillStyle = theme.raised;
    ctx.fillRect(...card);
    // What `box` of `cellAt` gives, without two objects for each of sixteen thousand cells.
    const corner = cellAt(layout, node, 0);
    const [left, top] = [this.long(corner.x - this.camera.x), this.long(corner.y - this.camera.y)];
    const [side, step] = [this.long(layout.cell), this.long(layout.cell + layout.gap)];
    const written = side >= INDEX_FROM * this.ratio;
    let any = admitted === undefined || gpus === 0;
    for (let place = 0; place < gpus; place++) {
      const cell = first + place;
      const pale = admitted !== undefined && admitted[cell] === 0;
      any ||= !pale;
      const [fromX, fromY] = [left + (place % across) * step, top + Math.floor(place / across) * step];
      const [x, y] = [Math.round(fromX), Math.round(fromY)];
      const [width, height] = [Math.round(fromX + side) - x, Math.round(fromY + side) - y];
      const its = looks[look[cell]!]!;
      if (pale) ctx.globalAlpha = PALE;
      this.paintCell(x, y, width, height, its);
      if (written) this.write(String(fleet.index[cell]), x + width / 2, y + height / 2, its, Math.min(side * 0.55, 13 * this.ratio));
      if (pale) ctx.globalAlpha = 1;
    }
    if (!any) ctx.globalAlpha = PALE;
    this.paintHead(card, name, health === "well" ? phaseOfNode(reservations, name) : health, this.long(layout.strip), theme);
    ctx.globalAlpha = 1;
  }

  private paintCell(x: number, y: number, width: number, height: number, look: Look) {
    const ctx = this.cells;
    let line = 0;
    if (look.edge !== undefined) {
      line = Math.max(1, Math.round(Math.min(2 * this.ratio, width / 8)));
      ctx.fillStyle = look.edge;
      ctx.fillRect(x, y, width, height);
    }
    ctx.fillStyle = look.fill;
    ctx.fillRect(x + line, y + line, width - 2 * line, height - 2 * line);
    const texture = look.texture && (look.texture === "hatch" || width >= TEXTURE_FROM * this.ratio) ? this.textures.get(look.texture) : undefined;
    if (texture) {
      ctx.fillStyle = texture;
      ctx.fillRect(x + line, y + line, width - 2 * line, height - 2 * line);
    }
    if (!look.crossed || width < CROSS_FROM * this.ratio) return;
    ctx.strokeStyle = look.ink;
    ctx.lineWidth = Math.max(1, width / 10);
    const inset = width * 0.22;
    ctx.beginPath();
    ctx.moveTo(x + inset, y + inset);
    ctx.lineTo(x + width - inset, y + height - inset);
    ctx.moveTo(x + width - inset, y + inset);
    ctx.lineTo(x + inset, y + height - inset);
    ctx.stroke();
  }

  private write(text: string, x: number, y: number, { ink, fill, texture }: Look, size: number) {
    const ctx = this.cells;
    ctx.font = `${Math.round(size)}px ${FONT}`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    if (texture !== undefined && texture !== "plain") {
      // What is drawn over the cell's colour would run through the letters.
      ctx.lineWidth = size * 0.5;
      ctx.lineJoin = "round";
      ctx.strokeStyle = fill;
      ctx.strokeText(text, x, y + 1);
    }
    ctx.fillStyle = ink;
    ctx.fillText(text, x, y + 1);
  }

  /** The node's name, and a glyph where it is not well or is reserved; on small cards the glyph lies over the cells. */
  private paintHead([x, y, width, height]: [number, number, number, number], name: string, mark: Mark | undefined, strip: number, theme: Theme) {
    const ctx = this.cells;
    const named = strip >= NAME_FROM * this.ratio;
    const size = named ? Math.min(12 * this.ratio, strip * 0.85) : Math.max(6 * this.ratio, Math.min(height * 0.7, 11 * this.ratio));
    if (named) {
      ctx.fillStyle = theme.text;
      ctx.font = `${Math.round(size * 0.95)}px ${FONT}`;
      ctx.textAlign = "left";
      ctx.textBaseline = "middle";
      const room = width - size * (mark ? 1.9 : 0.6);
      ctx.fillText(shortened(name, Math.floor(room / (size * 0.52))), x + size * 0.3, y + strip / 2 + 1);
    }
    // A small card has no room for the glyph of an upcoming reservation.
    if (mark && (named || mark !== "upcoming")) glyph(ctx, mark, named ? { x: x + width - size * 0.7, y: y + strip / 2 } : { x: x + width / 2, y: y + height / 2 }, size, theme, !named);
  }

  private paintAbove({ fleet, layout, theme }: Scene, seen: number[]) {
    const ctx = this.above;
    const { job, cell, node } = this.pointed;
    ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    if (job !== undefined) {
      ctx.globalAlpha = 0.74;
      ctx.fillStyle = theme.panel;
      ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height);
      ctx.globalAlpha = 1;
      for (const place of seen) {
        const { first, gpus } = fleet.nodes[place]!;
        for (let at = 0; at < gpus; at++) if (fleet.job[first + at] === job) ctx.clearRect(...this.box(cellAt(layout, place, at), layout.cell, layout.cell));
      }
    }
    if (node !== undefined && fleet.nodes[node]) {
      const { cardWidth, cardHeight } = layout.blocks[layout.block[node]!]!;
      this.outline(this.box({ x: layout.cardX[node]!, y: layout.cardY[node]! }, cardWidth, cardHeight), theme.accent, theme.panel);
    }
    const holder = cell === undefined ? undefined : fleet.node[cell];
    if (cell === undefined || holder === undefined) return;
    this.outline(this.box(cellAt(layout, holder, cell - fleet.nodes[holder]!.first), layout.cell, layout.cell), theme.text, theme.panel);
  }

  /** A line around a box, with another around it so that it shows on every ground. */
  private outline([x, y, width, height]: [number, number, number, number], colour: string, ground: string) {
    const ctx = this.above;
    const line = 2 * this.ratio;
    ctx.lineWidth = line;
    ctx.strokeStyle = ground;
    ctx.strokeRect(x - 1.5 * line, y - 1.5 * line, width + 3 * line, height + 3 * line);
    ctx.strokeStyle = colour;
    ctx.strokeRect(x - line / 2, y - line / 2, width + line, height + line);
  }
}

/** Nodes that look different. */
function changed(before: Scene, after: Scene): number[] {
  const moved = before.reservations !== after.reservations;
  const different = ({ name, first, gpus, health }: FleetNode, place: number) => {
    if (before.fleet.nodes[place]!.health !== health) return true;
    if (moved && phaseOfNode(before.reservations, name) !== phaseOfNode(after.reservations, name)) return true;
    for (let cell = first; cell < first + gpus; cell++) if (before.look[cell] !== after.look[cell]) return true;
    return false;
  };
  return after.fleet.nodes.flatMap((node, place) => (different(node, place) ? [place] : []));
}
