// One half of the map: GPUs by node as they are before the plan, or after it. What changes is in its job's colour, what stays is grey; the job that
// is pointed at is lit on a second canvas, so that the first is painted once.

import { useComputedColorScheme } from "@mantine/core";
import { type PointerEvent, useEffect, useRef } from "react";
import { category } from "../../lib/colour";
import { type Geometry, type MapNode, corner } from "./map";

interface Props {
  side: "before" | "after";
  nodes: readonly MapNode[];
  at: Geometry;
  lit: string | undefined;
  /** Of what it shows, for who does not see it. */
  told: string;
  onPoint: (x: number, y: number) => void;
}

export function MapHalf({ side, nodes, at, lit, told, onPoint }: Props) {
  const base = useRef<HTMLCanvasElement>(null);
  const light = useRef<HTMLCanvasElement>(null);
  const scheme = useComputedColorScheme("light");
  useEffect(() => {
    const context = prepared(base.current, at);
    if (context) paint(context, side, nodes, at);
  }, [side, nodes, at, scheme]);
  useEffect(() => {
    const context = prepared(light.current, at);
    if (context && lit) paintLit(context, side, nodes, at, lit);
  }, [side, nodes, at, scheme, lit]);
  const point = (event: PointerEvent) => {
    const { left, top } = event.currentTarget.getBoundingClientRect();
    onPoint(event.clientX - left, event.clientY - top);
  };
  return (
    <div className="plan-half" style={{ height: at.height }} onPointerMove={point} onPointerDown={point}>
      <canvas ref={base} role="img" aria-label={told} />
      <canvas ref={light} aria-hidden />
    </div>
  );
}

function prepared(canvas: HTMLCanvasElement | null, { width, height }: Geometry): CanvasRenderingContext2D | undefined {
  const context = canvas?.getContext("2d");
  if (!canvas || !context) return undefined;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  context.scale(scale, scale);
  return context;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(name).trim();
  return {
    jobs: Array.from({ length: 8 }, (_, index) => of(`--c${index}`)),
    stays: of("--hatch"),
    edge: of("--edge"),
    text: of("--text"),
    muted: of("--muted"),
  };
}

function paint(context: CanvasRenderingContext2D, side: Props["side"], nodes: readonly MapNode[], at: Geometry) {
  const { jobs, stays, edge, text, muted } = colours();
  context.lineWidth = 1;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  nodes.forEach((node, index) => {
    if (at.label > 0) {
      const [x, y] = corner(at, index, 0);
      context.fillStyle = muted;
      context.fillText(shortened(node.name, context, at.boxWidth - 10), x, y - at.label);
    }
    node[side].forEach((job, gpu) => {
      const [x, y] = corner(at, index, gpu);
      const changes = node.before[gpu] !== node.after[gpu];
      if (job !== undefined) {
        context.fillStyle = changes ? jobs[category(job)]! : stays;
        context.fillRect(x, y, at.cell, at.cell);
      }
      // The outline tells apart what colours alone would not.
      context.strokeStyle = changes && job !== undefined ? text : edge;
      context.strokeRect(x + 0.5, y + 0.5, at.cell - 1, at.cell - 1);
    });
  });
}

/** What does not fit goes from the middle, as everywhere. */
function shortened(name: string, context: CanvasRenderingContext2D, width: number): string {
  if (context.measureText(name).width <= width) return name;
  const points = [...name];
  for (let kept = points.length - 1; kept > 2; kept--) {
    const short = `${points.slice(0, Math.floor(kept / 2)).join("")}…${points.slice(-Math.ceil(kept / 2)).join("")}`;
    if (context.measureText(short).width <= width) return short;
  }
  return "…";
}

function paintLit(context: CanvasRenderingContext2D, side: Props["side"], nodes: readonly MapNode[], at: Geometry, lit: string) {
  const { text, jobs } = colours();
  context.lineWidth = 2;
  context.strokeStyle = text;
  context.fillStyle = jobs[category(lit)]!;
  nodes.forEach((node, index) => {
    node[side].forEach((job, gpu) => {
      if (job !== lit) return;
      const [x, y] = corner(at, index, gpu);
      context.fillRect(x, y, at.cell, at.cell);
      context.strokeRect(x, y, at.cell, at.cell);
    });
  });
}
