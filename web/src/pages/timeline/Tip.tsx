import type { Told } from "./words";

const WIDTH = 280;

export interface TipPlace {
  /** On the canvas, in sight. */
  x: number;
  y: number;
  gutter: number;
  width: number;
  height: number;
}

/** What lies under the pointer, beside it and within the lanes. */
export function Tip({ told, place: { x, y, gutter, width, height } }: { told: Told; place: TipPlace }) {
  const left = gutter + Math.max(-gutter, Math.min(x + 14, width - WIDTH));
  return (
    <div className="timeline-tip" style={{ left, width: WIDTH, ...(y < height / 2 ? { top: y + 22 } : { bottom: height - y + 8 }) }} aria-hidden>
      <strong>{told.title}</strong>
      {told.lines.map((line, index) => (
        <span key={index}>{line}</span>
      ))}
    </div>
  );
}
