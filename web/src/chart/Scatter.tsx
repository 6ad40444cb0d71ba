// Things as dots on two logarithmic axes, reached by pointer and keys, with a table as their twin.

import { type KeyboardEvent, type PointerEvent, type ReactNode, memo, useMemo, useState } from "react";
import { logTicks } from "./axis";
import { useWidth } from "./width";
import { Foot } from "./Foot";
import "./chart.css";
import "./stack.css";
import "./scatter.css";

export interface Dot {
  key: string;
  /** Above zero, both. */
  x: number;
  y: number;
  /** What its area tells. */
  size: number;
  colour: string;
  /** One sentence. */
  told: string;
}

/** A line that dots are held against. */
export interface Guide {
  name: string;
  y: (x: number) => number;
  dashed?: boolean;
}

interface Props {
  /** What it shows, in one sentence. */
  label: string;
  dots: Dot[];
  xName: string;
  yName: string;
  formatX: (value: number) => string;
  formatY: (value: number) => string;
  guides?: Guide[];
  /** In sight whatever the dots are. */
  around?: { x: number; y: number };
  /** Both axes span the same. */
  square?: boolean;
  /** What it means to be there: top left, top right, bottom left, bottom right. */
  corners?: [string, string, string, string];
  onOpen: (key: string) => void;
  /** The same, to be read. */
  table: ReactNode;
  testId?: string;
}

const HEIGHT = 300;
const [LEFT, RIGHT, TOP, BOTTOM] = [58, 10, 8, 36];
const [LEAST_RADIUS, MORE_RADIUS] = [3, 10];
/** A pointer this close to a dot means it. */
const NEAR = 24;
/** Free space beyond the outermost dots, as a factor. */
const MARGIN = 1.2;
const NO_GUIDES: Guide[] = [];

export function Scatter(props: Props) {
  const [asTable, setAsTable] = useState(false);
  return (
    <figure className="chart" data-testid={props.testId}>
      {asTable ? props.table : <Canvas {...props} />}
      <Foot keys={(props.guides ?? NO_GUIDES).map(({ name, dashed }) => ({ name, dashed, colour: "var(--edge)" }))} asTable={asTable} onSwitch={setAsTable} />
    </figure>
  );
}

interface Axis {
  low: number;
  high: number;
  at: (value: number) => number;
}

interface Placed extends Dot {
  cx: number;
  cy: number;
  r: number;
}

function axis(values: number[], begin: number, end: number): Axis {
  const low = values.reduce((one, other) => Math.min(one, other), Number.POSITIVE_INFINITY) / MARGIN;
  const high = values.reduce((one, other) => Math.max(one, other), 0) * MARGIN;
  const span = Math.log(high / low) || 1;
  return { low, high, at: (value) => begin + (Math.log(value / low) / span) * (end - begin) };
}

function Canvas(props: Props) {
  const { dots, around, square, onOpen, label } = props;
  const [host, width] = useWidth();
  const [chosen, setChosen] = useState<string>();

  const { x, y } = useMemo(() => {
    const [xs, ys] = [dots.map((dot) => dot.x), dots.map((dot) => dot.y)];
    if (around) {
      xs.push(around.x);
      ys.push(around.y);
    }
    const both = [...xs, ...ys];
    return { x: axis(square ? both : xs, LEFT, width - RIGHT), y: axis(square ? both : ys, HEIGHT - BOTTOM, TOP) };
  }, [dots, around, square, width]);
  // The small ones lie on the great ones.
  const placed = useMemo(() => {
    const most = dots.reduce((one, dot) => Math.max(one, dot.size), 1);
    const radius = (size: number) => LEAST_RADIUS + MORE_RADIUS * Math.sqrt(size / most);
    return dots.map((dot): Placed => ({ ...dot, cx: x.at(dot.x), cy: y.at(dot.y), r: radius(dot.size) })).sort((one, other) => other.r - one.r);
  }, [dots, x, y]);

  const onMove = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const away = (dot: Placed) => Math.hypot(dot.cx - px, dot.cy - py) - dot.r;
    const nearest = placed.reduce<Placed | undefined>((best, dot) => (best && away(best) < away(dot) ? best : dot), undefined);
    setChosen(nearest && away(nearest) < NEAR ? nearest.key : undefined);
  };
  const onKey = (event: KeyboardEvent) => {
    const along = event.key === "ArrowUp" || event.key === "ArrowDown" ? "y" : "x";
    const order = [...dots].sort((one, other) => one[along] - other[along]);
    const now = order.findIndex((dot) => dot.key === chosen);
    const last = order.length - 1;
    const steps: Record<string, number> = {
      ...{ ArrowRight: now + 1, ArrowUp: now + 1 },
      ...{ ArrowLeft: now < 0 ? last : now - 1, ArrowDown: now < 0 ? last : now - 1 },
      ...{ Home: 0, End: last },
    };
    const next = steps[event.key];
    if (next !== undefined) setChosen(order[Math.max(0, Math.min(last, next))]?.key);
    else if (event.key === "Enter" && chosen !== undefined) onOpen(chosen);
    else if (event.key === "Escape") setChosen(undefined);
    else return;
    event.preventDefault();
  };

  const lit = placed.find((dot) => dot.key === chosen);
  return (
    <>
      <div
        ref={host}
        className="chart-canvas stack-canvas"
        role="img"
        aria-label={`${label} Arrows move from dot to dot, Enter opens one.`}
        tabIndex={0}
        onKeyDown={onKey}
        style={{ height: HEIGHT }}
      >
        {width > 0 && (
          <svg
            width={width}
            height={HEIGHT}
            onPointerMove={onMove}
            onPointerLeave={() => setChosen(undefined)}
            onClick={() => lit && onOpen(lit.key)}
            className={lit ? "stack-opens" : undefined}
          >
            <Drawing
              {...{ placed, x, y, width, corners: props.corners }}
              guides={props.guides ?? NO_GUIDES}
              xName={props.xName}
              yName={props.yName}
              formatX={props.formatX}
              formatY={props.formatY}
            />
            {lit && <circle cx={lit.cx} cy={lit.cy} r={lit.r + 2} className="scatter-lit" />}
          </svg>
        )}
      </div>
      <p className="chart-readout" aria-live="polite" title={lit?.told}>
        {lit?.told}
      </p>
    </>
  );
}

interface DrawingProps extends Required<Pick<Props, "xName" | "yName" | "formatX" | "formatY" | "guides">> {
  corners: Props["corners"];
  placed: Placed[];
  x: Axis;
  y: Axis;
  width: number;
}

/** What does not follow the pointer. */
const Drawing = memo(function Drawing({ placed, x, y, width, xName, yName, formatX, formatY, guides, corners }: DrawingProps) {
  const [right, bottom] = [width - RIGHT, HEIGHT - BOTTOM];
  const places = [
    { x: LEFT + 6, y: TOP + 12, textAnchor: "start" },
    { x: right - 4, y: TOP + 12, textAnchor: "end" },
    { x: LEFT + 6, y: bottom - 6, textAnchor: "start" },
    { x: right - 4, y: bottom - 6, textAnchor: "end" },
  ] as const;
  return (
    <g>
      {logTicks(x.low, x.high).map((tick) => (
        <g key={`x${tick}`}>
          <line x1={x.at(tick)} x2={x.at(tick)} y1={TOP} y2={bottom} className="stack-grid" />
          <text x={x.at(tick)} y={bottom + 14} textAnchor="middle" className="stack-text">
            {formatX(tick)}
          </text>
        </g>
      ))}
      {logTicks(y.low, y.high).map((tick) => (
        <g key={`y${tick}`}>
          <line x1={LEFT} x2={right} y1={y.at(tick)} y2={y.at(tick)} className="stack-grid" />
          <text x={LEFT - 6} y={y.at(tick) + 4} textAnchor="end" className="stack-text">
            {formatY(tick)}
          </text>
        </g>
      ))}
      <text x={(LEFT + right) / 2} y={HEIGHT - 4} textAnchor="middle" className="stack-text">
        {xName} →
      </text>
      <text transform={`translate(10 ${(TOP + bottom) / 2}) rotate(-90)`} textAnchor="middle" className="stack-text">
        {yName} →
      </text>
      {corners?.map((text, index) => (
        <text key={text} {...places[index]} className="stack-text scatter-corner">
          {text}
        </text>
      ))}
      {/* An image of its own, which cuts off what lies outside the axes. */}
      <svg x={LEFT} y={TOP} width={Math.max(0, right - LEFT)} height={bottom - TOP} viewBox={`${LEFT} ${TOP} ${Math.max(1, right - LEFT)} ${bottom - TOP}`}>
        {guides.map((guide) => (
          // Straight between its ends: on these axes what is a power of x is a line.
          <path
            key={guide.name}
            d={`M${x.at(x.low)} ${y.at(guide.y(x.low))}L${x.at(x.high)} ${y.at(guide.y(x.high))}`}
            className={guide.dashed ? "scatter-guide scatter-dashed" : "scatter-guide"}
          />
        ))}
      </svg>
      {placed.map((dot) => (
        <circle key={dot.key} cx={dot.cx} cy={dot.cy} r={dot.r} fill={dot.colour} className="scatter-dot" />
      ))}
    </g>
  );
});
