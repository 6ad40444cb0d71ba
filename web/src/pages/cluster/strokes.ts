// Small drawings of the map: glyphs of nodes by path, since fonts differ in what they have, and textures of cells.

import type { Phase } from "../../lib/reservation";
import type { Health } from "./fleet";
import type { Spot } from "./layout";
import type { Texture, Theme } from "./palette";

/** Reason for the glyph of a card: a node that is not well, or a reservation. */
export type Mark = Exclude<Health, "well"> | Phase;

/** Suspect ▲, drained ⏸, lost ✕, a broken GPU !, joining ◌, reserved now ▣ or later ◷; on a plate of its own where it lies over cells. */
export function glyph(ctx: CanvasRenderingContext2D, mark: Mark, { x, y }: Spot, size: number, theme: Theme, plate: boolean) {
  const half = size / 2;
  if (plate) {
    ctx.fillStyle = theme.panel;
    ctx.fillRect(x - half - 1, y - half - 1, size + 2, size + 2);
  }
  ctx.fillStyle = ctx.strokeStyle = mark === "lost" || mark === "broken" ? theme.bad : mark === "joining" || mark === "upcoming" ? theme.muted : theme.warn;
  ctx.lineWidth = Math.max(1.5, size / 6);
  ctx.beginPath();
  if (mark === "suspect") {
    ctx.moveTo(x, y - half * 0.9);
    ctx.lineTo(x + half * 0.95, y + half * 0.8);
    ctx.lineTo(x - half * 0.95, y + half * 0.8);
    ctx.closePath();
    ctx.fill();
  } else if (mark === "drained") {
    ctx.fillRect(x - half * 0.7, y - half * 0.8, size * 0.24, size * 0.8);
    ctx.fillRect(x + half * 0.22, y - half * 0.8, size * 0.24, size * 0.8);
  } else if (mark === "broken") {
    ctx.fillRect(x - size * 0.1, y - half * 0.85, size * 0.2, size * 0.5);
    ctx.fillRect(x - size * 0.1, y + half * 0.45, size * 0.2, size * 0.2);
  } else if (mark === "joining") {
    ctx.arc(x, y, half * 0.7, 0, 2 * Math.PI);
    ctx.stroke();
  } else if (mark === "active") {
    ctx.strokeRect(x - half * 0.75, y - half * 0.75, half * 1.5, half * 1.5);
    ctx.fillRect(x - half * 0.35, y - half * 0.35, half * 0.7, half * 0.7);
  } else if (mark === "upcoming") {
    // A clock at three o'clock.
    ctx.arc(x, y, half * 0.8, 0, 2 * Math.PI);
    ctx.moveTo(x, y - half * 0.55);
    ctx.lineTo(x, y);
    ctx.lineTo(x + half * 0.5, y);
    ctx.stroke();
  } else {
    const arm = half * 0.7;
    ctx.moveTo(x - arm, y - arm);
    ctx.lineTo(x + arm, y + arm);
    ctx.moveTo(x + arm, y - arm);
    ctx.lineTo(x - arm, y + arm);
    ctx.stroke();
  }
}

const TILE = 6;

/** What is laid over a cell's colour; plain cells have none. */
export function textures(ctx: CanvasRenderingContext2D, theme: Theme): Map<Texture, CanvasPattern> {
  const slash = (pen: CanvasRenderingContext2D, rising: boolean) => {
    // Three strokes, so that the tiles join.
    for (const shift of [-TILE, 0, TILE]) {
      pen.moveTo(shift, rising ? TILE : 0);
      pen.lineTo(shift + TILE, rising ? 0 : TILE);
    }
    pen.stroke();
  };
  const drawn: [Texture, string, (pen: CanvasRenderingContext2D) => void][] = [
    ["rising", theme.panel, (pen) => slash(pen, true)],
    ["falling", theme.panel, (pen) => slash(pen, false)],
    ["dotted", theme.panel, (pen) => pen.fillRect(2, 2, 2, 2)],
    ["hatch", theme.hatch, (pen) => slash(pen, true)],
  ];
  const found = new Map<Texture, CanvasPattern>();
  for (const [texture, colour, draw] of drawn) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = TILE;
    const pen = tile.getContext("2d");
    if (!pen) continue;
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1;
    pen.globalAlpha = texture === "hatch" ? 1 : 0.7;
    pen.beginPath();
    draw(pen);
    const pattern = ctx.createPattern(tile, "repeat");
    if (pattern) found.set(texture, pattern);
  }
  return found;
}

/** At most so many characters: what does not fit goes from the middle. */
export function shortened(text: string, most: number): string {
  const points = [...text];
  if (points.length <= most) return text;
  if (most < 3) return "";
  const tail = Math.floor((most - 1) / 2);
  return `${points.slice(0, most - 1 - tail).join("")}…${points.slice(-tail).join("")}`;
}
