// Paints the lanes that are in sight. A job's bar is as thick as it has GPUs (logarithmic), hatched while it waits; a node's lane is as many GPUs
// high as the node has, in the colours of the jobs that held them. What is still to come is dashed. Faults are red notches.

import { timeTicks } from "../../chart/axis";
import type { Colours } from "./colours";
import type { Bar, Predicted, Row } from "./rows";
import type { Span } from "./span";

export const ROW_HEIGHT = 28;
/** Ticks stand no closer. */
export const TICK_SPACE = 84;
const INSET = 3;
const INNER = ROW_HEIGHT - 2 * INSET;
/** How far down a lane a place of its row lies, from 0 to 1. */
export function depth(y: number): number {
  return Math.min(1, Math.max(0, (y - INSET) / INNER));
}

const THINNEST = 7;
const FONT = "11px system-ui, sans-serif";

export interface Scene {
  rows: readonly Row[];
  span: Span;
  /** The moment that is shown, which is the present mostly. */
  now: number;
  /** Of a past moment nothing is predicted. */
  past: boolean;
  /** The most GPUs of a job that is shown, which is drawn the thickest. */
  most: number;
  byNode: boolean;
  /** Reservations by the nodes that they set aside. */
  reserved: ReadonlyMap<string, readonly { from: number; to: number; name: string }[]>;
  /** The row under the pointer or the keyboard. */
  marked: number | undefined;
}

interface View extends Scene {
  pen: CanvasRenderingContext2D;
  colours: Colours;
  width: number;
  x: (at: number) => number;
}

/** `top`: how far the list is scrolled; width and height in CSS pixels. */
export function paint(pen: CanvasRenderingContext2D, scene: Scene, colours: Colours, top: number, width: number, height: number) {
  const { from, to } = scene.span;
  const view: View = { ...scene, pen, colours, width, x: (at) => ((at - from) / (to - from)) * width };
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const first = Math.floor(top / ROW_HEIGHT);
  const last = Math.min(scene.rows.length - 1, Math.floor((top + height) / ROW_HEIGHT));
  grid(view, top, height);
  for (let index = first; index <= last; index++) {
    const y = index * ROW_HEIGHT - top;
    if (index === scene.marked) {
      pen.fillStyle = colours.raised;
      pen.fillRect(0, y, width, ROW_HEIGHT - 1);
    }
    const row = scene.rows[index]!;
    if (scene.byNode) nodeLane(view, row, y + INSET);
    else jobLane(view, row, y + INSET);
    for (const fault of row.faults) notch(view, view.x(fault.at), y + INSET);
  }
  present(view, height);
}

function grid({ pen, colours, width, span, x, rows }: View, top: number, height: number) {
  pen.fillStyle = colours.line;
  for (const { at } of timeTicks(span.from / 1_000, span.to / 1_000, width / TICK_SPACE)) pen.fillRect(Math.round(x(at * 1_000)), 0, 1, height);
  const end = rows.length * ROW_HEIGHT - top;
  for (let y = ROW_HEIGHT - (top % ROW_HEIGHT) - 1; y < Math.min(height, end); y += ROW_HEIGHT) pen.fillRect(0, y, width, 1);
}

function present({ pen, colours, now, width, x }: View, height: number) {
  const at = Math.round(x(now));
  if (at < 0 || at > width) return;
  pen.fillStyle = colours.accent;
  pen.fillRect(at - 1, 0, 2, height);
}

/** Where a time lies on the canvas; undefined beyond its edges. */
function stretch({ x, width }: View, from: number, to: number): [number, number] | undefined {
  const [left, right] = [Math.max(-2, x(from)), Math.min(width + 2, x(to))];
  return right < 0 || left > width || right < left ? undefined : [left, Math.max(1, right - left)];
}

/** How high the bar of so many GPUs is. */
function thickness(gpus: number, most: number): number {
  return THINNEST + (INNER - THINNEST) * (Math.log2(1 + gpus) / Math.log2(1 + Math.max(1, most)));
}

function jobLane(view: View, row: Row, y: number) {
  const colour = view.colours.job(row.id);
  for (const bar of row.bars) {
    const place = stretch(view, bar.from, bar.to);
    if (!place) continue;
    const [left, width] = place;
    const high = bar.gpus ? thickness(bar.gpus, view.most) : THINNEST + 3;
    const top = y + (INNER - high) / 2;
    if (bar.shares.length > 0) layers(view, bar, colour, left, top, width, high);
    else phase(view, bar.state, colour, left, top, width, high);
    words(view, label(bar), left, top, width, high);
  }
  const last = row.bars[row.bars.length - 1];
  if (view.past) return;
  if (row.start) foreseen(view, row.start, y, view.colours.muted);
  if (row.end) ending(view, row.end, last?.gpus ? thickness(last.gpus, view.most) : THINNEST, y, colour);
}

function label(bar: Bar): string {
  return [bar.gpus && `${bar.gpus} GPU${bar.gpus === 1 ? "" : "s"}`, bar.layout].filter(Boolean).join(" · ");
}

/** One state: its look tells it where its colour does not. */
function phase({ pen, colours }: View, state: string, colour: string, left: number, top: number, width: number, high: number) {
  const frame = (line: string, dash: number[] = []) => {
    if (width < 3) {
      pen.fillStyle = line;
      pen.fillRect(left, top, width, high);
      return;
    }
    pen.strokeStyle = line;
    pen.setLineDash(dash);
    pen.strokeRect(left + 0.5, top + 0.5, width - 1, high - 1);
    pen.setLineDash([]);
  };
  const fill = (paint: CanvasPattern | string) => {
    pen.fillStyle = paint;
    pen.fillRect(left, top, width, high);
  };
  pen.lineWidth = 1;
  switch (state) {
    case "running":
      fill(`${colour}52`);
      return frame(colour);
    case "starting":
      fill(`${colour}1f`);
      return frame(colour, [2, 2]);
    case "stopping":
      fill(colours.hatch(colour));
      return frame(colour);
    case "held":
      return frame(colours.edge, [1, 3]);
    default:
      fill(colours.hatch(colours.edge));
      return frame(colours.edge);
  }
}

/** Several states drawn together: as high as each lasted, since in which order they came cannot be seen. */
function layers(view: View, bar: Bar, colour: string, left: number, top: number, width: number, high: number) {
  let y = top;
  for (const { state, share } of bar.shares) {
    phase(view, state, colour, left, y, width, Math.max(1, high * share));
    y += high * share;
  }
}

function words({ pen, colours }: View, text: string, left: number, top: number, width: number, high: number) {
  if (!text || width < 28 || high < 12) return;
  const begins = Math.max(0, left);
  const room = left + width - begins - 8;
  if (pen.measureText(text).width > room) return;
  pen.fillStyle = colours.text;
  pen.fillText(text, begins + 4, top + high / 2 + 0.5);
}

/** A start that is predicted: dashed to its median, with its spread as a band. */
function foreseen(view: View, { p10, p50, p90 }: Predicted, y: number, colour: string) {
  const { pen, now, x } = view;
  const middle = y + INNER / 2;
  spread(view, p10, p90 ?? p50, y, colour);
  const until = p50 ?? p10;
  if (until === undefined) return;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.setLineDash([4, 4]);
  pen.beginPath();
  pen.moveTo(x(now), middle);
  pen.lineTo(x(until), middle);
  pen.stroke();
  pen.setLineDash([]);
  if (p50 === undefined) return;
  pen.beginPath();
  pen.moveTo(x(p50), y + 3);
  pen.lineTo(x(p50), y + INNER - 3);
  pen.stroke();
}

/** An end that is predicted: the bar goes on, hollow and dashed. */
function ending(view: View, { p10, p50, p90 }: Predicted, high: number, y: number, colour: string) {
  const { pen, now } = view;
  if (p50 === undefined) return;
  const place = stretch(view, now, Math.max(now, p50));
  if (!place) return;
  spread(view, p10, p90, y, colour);
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.setLineDash([4, 3]);
  pen.strokeRect(place[0] + 0.5, y + (INNER - high) / 2 + 0.5, Math.max(1, place[1] - 1), high - 1);
  pen.setLineDash([]);
}

function spread(view: View, low: number | undefined, high: number | undefined, y: number, colour: string) {
  if (low === undefined || high === undefined) return;
  const place = stretch(view, low, high);
  if (!place) return;
  view.pen.fillStyle = `${colour}38`;
  view.pen.fillRect(place[0], y + 4, place[1], INNER - 8);
}

function nodeLane(view: View, row: Row, y: number) {
  const { pen, colours } = view;
  for (const { from, to } of view.reserved.get(row.name) ?? []) {
    const place = stretch(view, from, to);
    if (!place) continue;
    pen.strokeStyle = colours.accent;
    pen.setLineDash([5, 3]);
    pen.strokeRect(place[0] + 0.5, y - 1.5, place[1] - 1, INNER + 3);
    pen.setLineDash([]);
  }
  for (const bar of row.bars) {
    const place = stretch(view, bar.from, bar.to);
    if (place) standing(view, bar, place[0], y, place[1]);
  }
  const slot = INNER / Math.max(1, row.slots);
  for (const held of row.held) {
    const place = stretch(view, held.from, held.to);
    if (!place) continue;
    const [left, width] = place;
    const [top, high] = [y + held.slot * slot, Math.max(1, Math.min(row.slots - held.slot, held.gpus) * slot - 0.5)];
    const colour = held.job ? colours.job(held.job) : colours.edge;
    pen.fillStyle = held.job ? `${colour}66` : colours.hatch(colour);
    pen.fillRect(left, top, width, high);
    pen.fillStyle = colour;
    pen.fillRect(left, top, width, 1);
    pen.fillRect(left, top, 1, high);
    words(view, held.name ?? "", left, top, width, high);
  }
}

/** What keeps work away from a node: red and grey stretches behind what ran there. */
function standing({ pen, colours }: View, bar: Bar, left: number, y: number, width: number) {
  const behind = (paint: CanvasPattern | string, line: string) => {
    pen.fillStyle = paint;
    pen.fillRect(left, y, width, INNER);
    pen.fillStyle = line;
    pen.fillRect(left, y, Math.min(width, 2), INNER);
    pen.fillRect(left, y + INNER - 1, width, 1);
  };
  switch (bar.state) {
    case "lost":
    case "unreachable":
      behind(`${colours.bad}47`, colours.bad);
      break;
    case "quarantined":
      behind(colours.hatch(colours.warn), colours.warn);
      break;
    case "draining":
    case "cordoned":
      behind(colours.hatch(colours.edge), colours.edge);
      break;
    default:
      pen.fillStyle = bar.state === "available" ? colours.edge : colours.warn;
      pen.fillRect(left, y + INNER - 1, width, 1);
  }
  if (bar.gpus === undefined || bar.healthy === undefined || bar.healthy >= bar.gpus) return;
  pen.fillStyle = colours.bad;
  pen.fillRect(left, y, width, 2);
}

function notch({ pen, colours, width }: View, x: number, y: number) {
  if (x < 0 || x > width) return;
  pen.fillStyle = colours.bad;
  pen.fillRect(x - 1, y, 2, INNER);
  pen.beginPath();
  pen.moveTo(x - 5, y - 3);
  pen.lineTo(x + 5, y - 3);
  pen.lineTo(x, y + 4);
  pen.fill();
}
