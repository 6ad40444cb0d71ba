// What uPlot is told of a chart, and what is drawn beside its lines: gaps below them, marks of events above.

import uPlot from "uplot";
import { si } from "../lib/format";
import { timeTicks } from "./axis";
import type { ChartProps } from "./Chart";
import { alone } from "./gaps";
import type { Mark } from "./marks";

/** A colour of the theme, as canvas takes it. */
function paint(colour: string, style: CSSStyleDeclaration): string {
  const variable = /^var\((--[\w-]+)\)$/.exec(colour)?.[1];
  return variable ? style.getPropertyValue(variable).trim() : colour;
}

/** No closer than 70 pixels. */
function ticksOf(made: uPlot, low: number, high: number) {
  return timeTicks(low, high, Math.max(1, Math.floor(made.width / 70)));
}

/** Of an axis that does not begin at zero, as a share of its values. */
const LEAST_SPAN = 0.1;

export type Drawn = ChartProps & { gaps: [number, number][] };

export function options(latest: { current: Drawn }, width: number, height: number, onHover: (at: number | null) => void): uPlot.Options {
  const { lines, log, fromZero = true, sync } = latest.current;
  const style = getComputedStyle(document.documentElement);
  const axis: uPlot.Axis = {
    stroke: paint("var(--muted)", style),
    grid: { stroke: paint("var(--line)", style), width: 1 },
    ticks: { stroke: paint("var(--line)", style), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  const right = lines.some((line) => line.scale === "right");
  const range = (_: uPlot, low: number | null, high: number | null): [number, number] => {
    if (low === null || high === null) return [0, 1];
    if (!fromZero) {
      // What hardly changes is drawn as hardly changing.
      const half = Math.max(high - low, LEAST_SPAN * Math.max(Math.abs(low), Math.abs(high))) * 0.6 || 1;
      return [(low + high) / 2 - half, (low + high) / 2 + half];
    }
    return [Math.min(0, low), high > 0 ? high * 1.08 : 1];
  };
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  for (const line of lines) {
    const colour = paint(line.colour, style);
    const scale = line.scale ?? "y";
    series.push({
      label: line.name,
      scale,
      stroke: colour,
      width: 1.5,
      // A value between two gaps would be no line.
      points: { show: true, size: 4, filter: (made, index) => alone(made.data[index] as (number | null)[]) },
      spanGaps: false,
      ...(line.area ? { fill: `${colour}33` } : {}),
      ...(line.dashed ? { dash: [6, 4] } : {}),
      ...(line.stepped ? { paths: uPlot.paths.stepped!({ align: 1 }) } : {}),
    });
    if (!line.band) continue;
    const edge: uPlot.Series = { scale, stroke: "transparent", width: 0, points: { show: false } };
    series.push(edge, edge);
    bands.push({ series: [series.length - 1, series.length - 2], fill: `${colour}2e` });
  }
  return {
    width,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false }, ...(sync ? { sync: { key: sync } } : {}) },
    axes: [
      {
        ...axis,
        size: 24,
        splits: (made, _, low, high) => ticksOf(made, low, high).map((tick) => tick.at),
        values: (made, ticks) => {
          const texts = new Map(ticksOf(made, made.scales.x!.min!, made.scales.x!.max!).map((tick) => [tick.at, tick.text]));
          return ticks.map((tick) => texts.get(tick) ?? "");
        },
      },
      { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : (latest.current.format ?? si)(tick))) },
      ...(right
        ? [{ ...axis, scale: "right", side: 1 as const, size: 50, grid: { show: false }, values: (_: uPlot, ticks: number[]) => ticks.map((tick) => (latest.current.formatRight ?? si)(tick)) }]
        : []),
    ],
    scales: {
      x: {
        range: (_, low, high) => {
          const { from, to } = latest.current;
          return [from ?? low ?? 0, to ?? Math.max(high ?? 1, (low ?? 0) + 60)];
        },
      },
      y: log ? { distr: 3 } : { range },
      ...(right ? { right: { range } } : {}),
    },
    series,
    bands,
    hooks: {
      setCursor: [(made) => onHover(made.cursor.idx ?? null)],
      drawAxes: [(made) => drawGaps(made, latest.current.gaps, style)],
      draw: [(made) => drawMarks(made, latest.current.marks ?? [], style)],
    },
  };
}

/** Narrower gaps are seen as a break of the line alone. */
const NARROW = 2;
/** What is missing is seen, but not before what is there. */
const PALE = 0.45;

function drawGaps(made: uPlot, gaps: readonly [number, number][], style: CSSStyleDeclaration) {
  const { ctx, bbox } = made;
  const pattern = gaps.length > 0 && ctx.createPattern(hatch(paint("var(--edge)", style)), "repeat");
  if (!pattern) return;
  ctx.save();
  ctx.globalAlpha = PALE;
  ctx.fillStyle = pattern;
  for (const [from, to] of gaps) {
    const left = Math.max(bbox.left, made.valToPos(from, "x", true));
    const right = Math.min(bbox.left + bbox.width, made.valToPos(to, "x", true));
    if (right - left > NARROW * devicePixelRatio) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

/** Thin lines from below on the left to above on the right. */
function hatch(colour: string): HTMLCanvasElement {
  const tile = document.createElement("canvas");
  const size = Math.round(8 * devicePixelRatio);
  tile.width = tile.height = size;
  const ctx = tile.getContext("2d");
  if (!ctx) return tile;
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio * 0.75;
  // The corners belong to the neighbours of the tile.
  for (const shift of [-size, 0, size]) {
    ctx.moveTo(shift - 1, size + 1);
    ctx.lineTo(shift + size + 1, -1);
  }
  ctx.stroke();
  return tile;
}

const TONES: Record<Mark["tone"], string> = { plain: "var(--edge)", good: "var(--good)", warn: "var(--warn)", bad: "var(--bad)" };

function drawMarks(made: uPlot, marks: readonly Mark[], style: CSSStyleDeclaration) {
  const { ctx, bbox } = made;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const mark of marks) {
    const x = Math.round(made.valToPos(mark.at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = paint(TONES[mark.tone], style);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
