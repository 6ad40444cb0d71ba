// Goodput over the number of GPUs, on an axis of powers of two: what was measured is filled, what is predicted hollow with its deciles, what cannot
// be a cross; the present size has a ring.

import { useWidth } from "../../chart/width";
import { count, si } from "../../lib/format";
import type { CurvePoint } from "./asks";

interface Props {
  points: readonly CurvePoint[];
  /** By GPUs. */
  measured: ReadonlyMap<number, number>;
}

const HEIGHT = 210;
const EDGE = { left: 46, right: 16, top: 12, bottom: 24 };

export function CurveChart({ points, measured }: Props) {
  const [ref, width] = useWidth();
  return (
    <div ref={ref} className="job-curve" style={{ height: HEIGHT }}>
      {width > 0 && <Drawing points={points} measured={measured} width={width} />}
    </div>
  );
}

function Drawing({ points, measured, width }: Props & { width: number }) {
  const sizes = points.map((point) => point.gpus);
  const [least, most] = [Math.log2(Math.min(...sizes)), Math.log2(Math.max(...sizes))];
  const highest = Math.max(...points.map((point) => point.goodput_high_tokens_per_second ?? point.goodput_tokens_per_second), ...measured.values(), 1);
  const x = (gpus: number) => {
    const share = most > least ? (Math.log2(gpus) - least) / (most - least) : 0.5;
    return EDGE.left + 8 + share * (width - EDGE.left - EDGE.right - 16);
  };
  const y = (goodput: number) => HEIGHT - EDGE.bottom - (goodput / highest) * (HEIGHT - EDGE.top - EDGE.bottom);
  const feasible = points.filter((point) => point.infeasible == null);
  const powers = Array.from({ length: Math.floor(most) - Math.ceil(least) + 1 }, (_, index) => 2 ** (Math.ceil(least) + index));
  const ticks = powers.length > 1 ? powers : [...new Set([sizes[0]!, sizes[sizes.length - 1]!])];
  return (
    <svg width={width} height={HEIGHT} role="img" aria-label={summary(points, measured)} data-testid="job-curve">
      {[0, 0.5, 1].map((share) => (
        <g key={share}>
          <line x1={EDGE.left} x2={width - EDGE.right} y1={y(highest * share)} y2={y(highest * share)} stroke="var(--line)" />
          <text x={EDGE.left - 6} y={y(highest * share) + 4} textAnchor="end" className="job-axis">
            {si(highest * share)}
          </text>
        </g>
      ))}
      {ticks.map((gpus) => (
        <text key={gpus} x={x(gpus)} y={HEIGHT - 6} textAnchor="middle" className="job-axis">
          {gpus}
        </text>
      ))}
      <polyline
        points={feasible.map((point) => `${x(point.gpus)},${y(point.goodput_tokens_per_second)}`).join(" ")}
        fill="none"
        stroke="var(--edge)"
        strokeDasharray="5 4"
      />
      {points.map((point) => (
        <Point key={point.gpus} point={point} x={x(point.gpus)} y={y} measured={measured.get(point.gpus)} />
      ))}
    </svg>
  );
}

function Point({ point, x, y, measured }: { point: CurvePoint; x: number; y: (goodput: number) => number; measured: number | undefined }) {
  const { goodput_low_tokens_per_second: low, goodput_high_tokens_per_second: high, goodput_tokens_per_second: goodput } = point;
  if (point.infeasible != null) {
    return (
      <text x={x} y={y(0) - 3} textAnchor="middle" className="job-cross">
        ✕<title>{`${point.gpus} GPUs: ${point.infeasible}`}</title>
      </text>
    );
  }
  return (
    <g>
      <title>{inWords(point, measured)}</title>
      {low != null && high != null && <line x1={x} x2={x} y1={y(low)} y2={y(high)} stroke="var(--edge)" strokeWidth={1.5} />}
      <circle cx={x} cy={y(goodput)} r={4} fill="var(--panel)" stroke="var(--accent)" strokeWidth={1.5} />
      {measured !== undefined && <circle cx={x} cy={y(measured)} r={4} fill="var(--accent)" />}
      {point.chosen && <circle cx={x} cy={y(measured ?? goodput)} r={9} fill="none" stroke="var(--text)" strokeWidth={1.5} />}
    </g>
  );
}

function inWords(point: CurvePoint, measured: number | undefined): string {
  const { goodput_low_tokens_per_second: low, goodput_high_tokens_per_second: high } = point;
  const band = low != null && high != null ? ` (${si(low)} to ${si(high)})` : "";
  const came = measured === undefined ? "" : `, measured ${si(measured)}`;
  return `${count(point.gpus)} GPUs: predicted ${si(point.goodput_tokens_per_second)}${band}${came} reference tokens/s${point.chosen ? ", the present size" : ""}`;
}

function summary(points: readonly CurvePoint[], measured: ReadonlyMap<number, number>): string {
  const feasible = points.filter((point) => point.infeasible == null);
  const best = feasible.reduce<CurvePoint | undefined>(
    (most, point) => (most && most.goodput_tokens_per_second >= point.goodput_tokens_per_second ? most : point),
    undefined,
  );
  const chosen = points.find((point) => point.chosen);
  const parts = [
    chosen ? inWords(chosen, measured.get(chosen.gpus)) : "It has no GPUs now",
    best ? `the most is predicted at ${count(best.gpus)} GPUs: ${si(best.goodput_tokens_per_second)}` : "",
    `${feasible.length} of ${points.length} sizes can be`,
  ];
  return `Goodput over GPUs. ${parts.filter(Boolean).join("; ")}.`;
}
