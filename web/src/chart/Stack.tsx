// What adds up over time: layers on each other with lines over them. Values are told as they are, not as they are stacked.

import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, type PointerEvent, type ReactNode, memo, useId, useMemo, useState } from "react";
import type { Texture } from "../lib/colour";
import { si } from "../lib/format";
import { AsTable } from "./AsTable";
import type { Line } from "./Chart";
import { Foot } from "./Foot";
import { MarkLinks } from "./MarkLinks";
import { momentOf, timeTicks, valueTicks } from "./axis";
import { type Mark, markAt } from "./marks";
import { type Plot, areaPath, edges, linePath, unknown } from "./stacked";
import { useWidth } from "./width";
import "./chart.css";
import "./stack.css";

export interface Layer {
  key: string;
  name: string;
  /** In the legend instead of the name: a link, mostly. */
  label?: ReactNode;
  colour: string;
  /** Drawn over the colour, where several have the same. */
  texture?: Texture;
  values: (number | null)[];
}

interface Props {
  /** What it shows, in a few words. */
  label: string;
  /** Where steps begin, in seconds since 1970, one after another. */
  times: number[];
  stepSeconds: number;
  /** The lowest first. */
  layers: Layer[];
  lines: Pick<Line, "name" | "colour" | "values" | "dashed">[];
  marks?: Mark[];
  height?: number;
  format?: (value: number) => string;
  /** Enter or a press on a layer. */
  onOpen?: (key: string) => void;
  testId?: string;
}

const HEIGHT = 240;
const [LEFT, RIGHT, TOP, BOTTOM] = [58, 4, 6, 20];
/** So near to the right edge a text would go beyond it. */
const EDGE = 24;
const NO_MARKS: Mark[] = [];

interface Cursor {
  index: number;
  layer: number | undefined;
  /** The event that is pointed at. */
  seq?: number | undefined;
}

export function Stack(props: Props) {
  const { label, layers, lines, times, height = HEIGHT, format = si } = props;
  const [asTable, setAsTable] = useState(false);
  const missing = useMemo(() => unknown([...layers, ...lines].map(({ values }) => values), times.length), [layers, lines, times]);
  return (
    <figure className="chart" data-testid={props.testId}>
      {times.length === 0 ? (
        <p className="muted">{label}: nothing was measured.</p>
      ) : asTable ? (
        <AsTable {...{ label, times, height }} columns={[...lines, ...layers].map(({ name, values }) => ({ name, values, format }))} />
      ) : (
        <Canvas {...props} height={height} missing={missing} />
      )}
      <Foot keys={lines} gaps={times.length > 0 && missing.length > 0} asTable={asTable} onSwitch={setAsTable}>
        {layers.map((layer) => (
          <span key={layer.key} className="chart-key stack-key">
            {layer.label ?? (
              <>
                <span className="swatch" style={{ background: layer.colour }} aria-hidden />
                {layer.name}
              </>
            )}
          </span>
        ))}
      </Foot>
    </figure>
  );
}

function Canvas(props: Props & { height: number; missing: [number, number][] }) {
  const { times, layers, lines, stepSeconds, height, missing, onOpen, format = si, label, marks = NO_MARKS } = props;
  const navigate = useNavigate();
  const [host, width] = useWidth();
  const [cursor, setCursor] = useState<Cursor>();
  const stacked = useMemo(() => edges(layers.map((layer) => layer.values), times.length), [layers, times]);
  const plot = useMemo(() => plotOf(width, height, times, stacked, lines), [width, height, times, stacked, lines]);
  const areas = useMemo(
    () => layers.map((layer, index) => areaPath(layer.values, stacked[index]!.low, stacked[index]!.high, plot)),
    [layers, stacked, plot],
  );
  const told = useMemo(() => summary(label, times, layers, lines, format), [label, times, layers, lines, format]);

  const onMove = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const across = (event.clientX - box.left - LEFT) / Math.max(1, width - LEFT - RIGHT);
    const index = Math.max(0, Math.min(times.length - 1, Math.floor(across * times.length)));
    const up = event.clientY - box.top;
    const layer = stacked.findIndex(({ low, high }) => plot.y(high[index]!) <= up && up < plot.y(low[index]!));
    const { seq } = markAt(marks, event.clientX - box.left, (at) => plot.x((at - times[0]!) / stepSeconds)) ?? {};
    setCursor({ index, layer: layer < 0 ? undefined : layer, seq });
  };
  const open = () => {
    if (cursor?.seq !== undefined) return void navigate({ to: "/events", search: { event: String(cursor.seq) } });
    const layer = cursor?.layer === undefined ? undefined : layers[cursor.layer];
    if (layer) onOpen?.(layer.key);
  };
  const onKey = (event: KeyboardEvent) => {
    const { index, layer } = cursor ?? { index: times.length - 1, layer: undefined };
    const last = layers.length - 1;
    const next: Record<string, Cursor> = {
      ArrowLeft: { index: Math.max(0, index - 1), layer },
      ArrowRight: { index: Math.min(times.length - 1, index + 1), layer },
      Home: { index: 0, layer },
      End: { index: times.length - 1, layer },
      ArrowUp: { index, layer: last < 0 ? undefined : Math.min(last, (layer ?? -1) + 1) },
      ArrowDown: { index, layer: last < 0 ? undefined : Math.max(0, (layer ?? 1) - 1) },
    };
    if (event.key === "Enter") open();
    else if (event.key === "Escape") setCursor(undefined);
    else if (next[event.key]) setCursor(next[event.key]);
    else return;
    event.preventDefault();
  };

  const at = cursor && cursor.index < times.length ? cursor : undefined;
  const lit = at?.layer === undefined ? undefined : areas[at.layer];
  return (
    <>
      <div ref={host} className="chart-canvas stack-canvas" role="img" aria-label={told} tabIndex={0} onKeyDown={onKey} style={{ height }}>
        {width > 0 && (
          <svg
            width={width}
            height={height}
            onPointerMove={onMove}
            onPointerLeave={() => setCursor(undefined)}
            onClick={open}
            className={at?.seq !== undefined || (lit && onOpen) ? "stack-opens" : undefined}
          >
            <Drawing {...{ times, stepSeconds, layers, lines, marks, height, format, plot, areas, width, missing }} />
            {at && (
              <rect
                x={plot.x(at.index)}
                y={TOP}
                width={Math.max(1, plot.x(at.index + 1) - plot.x(at.index))}
                height={height - TOP - BOTTOM}
                className="stack-cursor"
              />
            )}
            {lit && <path d={lit} className="stack-lit" />}
          </svg>
        )}
      </div>
      <p className="chart-readout" aria-live="polite">
        {at && readout(at, props)}
        {at && <MarkLinks marks={marks.filter((mark) => mark.at >= times[at.index]! && mark.at < times[at.index]! + stepSeconds)} />}
      </p>
    </>
  );
}

interface Scaled extends Plot {
  most: number;
}

function plotOf(width: number, height: number, times: number[], stacked: { high: number[] }[], lines: Props["lines"]): Scaled {
  const top = stacked[stacked.length - 1]?.high ?? [];
  const values = [...top, ...lines.flatMap((line) => line.values.filter((value): value is number => value !== null))];
  const most = values.reduce((one, other) => Math.max(one, other), 0) * 1.05 || 1;
  const across = (width - LEFT - RIGHT) / Math.max(1, times.length);
  return { most, x: (index) => LEFT + index * across, y: (value) => TOP + (1 - value / most) * (height - TOP - BOTTOM) };
}

interface DrawingProps extends Required<Pick<Props, "times" | "stepSeconds" | "layers" | "lines" | "marks" | "height" | "format">> {
  plot: Scaled;
  areas: string[];
  width: number;
  missing: [number, number][];
}

/** What does not follow the pointer, and is painted once per answer. */
const Drawing = memo(function Drawing(props: DrawingProps) {
  const { times, stepSeconds, layers, lines, marks, plot, areas, width, height, format, missing } = props;
  const id = useId();
  const begin = times[0]!;
  const end = times[times.length - 1]! + stepSeconds;
  const across = (at: number) => plot.x((at - begin) / stepSeconds);
  return (
    <g>
      <Patterns id={id} />
      {missing.map(([begin, end]) => (
        <rect key={begin} x={plot.x(begin)} y={TOP} width={plot.x(end) - plot.x(begin)} height={height - TOP - BOTTOM} fill={`url(#${id}missing)`} />
      ))}
      {valueTicks(plot.most).map((tick) => (
        <g key={tick}>
          <line x1={LEFT} x2={width - RIGHT} y1={plot.y(tick)} y2={plot.y(tick)} className="stack-grid" />
          <text x={LEFT - 6} y={plot.y(tick) + 4} textAnchor="end" className="stack-text">
            {format(tick)}
          </text>
        </g>
      ))}
      {timeTicks(begin, end, (width - LEFT) / 80).map(({ at, text }) => (
        <text key={at} x={Math.min(across(at), width - RIGHT)} y={height - 5} textAnchor={across(at) > width - EDGE ? "end" : "middle"} className="stack-text">
          {text}
        </text>
      ))}
      {layers.map((layer, index) => (
        <g key={layer.key}>
          <path d={areas[index]} fill={layer.colour} className="stack-layer" />
          {layer.texture && layer.texture !== "plain" && <path d={areas[index]} fill={`url(#${id}${layer.texture})`} />}
        </g>
      ))}
      {lines.map((line) => (
        <path key={line.name} d={linePath(line.values, plot)} stroke={line.colour} className={line.dashed ? "stack-line stack-dashed" : "stack-line"} />
      ))}
      {marks
        .filter((mark) => mark.at >= begin && mark.at <= end)
        .map((mark, index) => (
          <path key={index} d={`M${across(mark.at).toFixed(1)} ${TOP}V${height - BOTTOM}`} className={`stack-mark ${mark.tone}`} />
        ))}
    </g>
  );
});

/** What is laid over colours, and over what was not measured. */
function Patterns({ id }: { id: string }) {
  const tile = { width: 8, height: 8, patternUnits: "userSpaceOnUse" } as const;
  return (
    <defs>
      <pattern id={`${id}missing`} {...tile} patternTransform="rotate(45)">
        <line y2="8" className="stack-missing" />
      </pattern>
      <pattern id={`${id}rising`} {...tile} patternTransform="rotate(45)">
        <line y2="8" className="stack-texture" />
      </pattern>
      <pattern id={`${id}falling`} {...tile} patternTransform="rotate(-45)">
        <line y2="8" className="stack-texture" />
      </pattern>
      <pattern id={`${id}dotted`} {...tile}>
        <circle cx="2" cy="2" r="1" className="stack-dot" />
        <circle cx="6" cy="6" r="1" className="stack-dot" />
      </pattern>
    </defs>
  );
}

function readout({ index, layer }: Cursor, { times, layers, lines, format = si }: Props): string {
  const at = times[index]!;
  const tell = (name: string, value: number | null | undefined) => `${name} ${value == null ? "–" : format(value)}`;
  const under = layer === undefined ? undefined : layers[layer];
  const told = [...(under ? [under] : []), ...lines].map((line) => tell(line.name, line.values[index]));
  return [momentOf(at, times), ...told].join(" · ");
}

/** One sentence for who does not see the chart. */
function summary(label: string, times: number[], layers: Layer[], lines: Props["lines"], format: (value: number) => string): string {
  const parts = lines.map((line) => {
    const known = line.values.filter((value): value is number => value !== null);
    if (known.length === 0) return `${line.name} was not measured`;
    const [least, most] = known.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    return `${line.name} between ${format(least)} and ${format(most)}`;
  });
  const span = `${momentOf(times[0]!, times)} to ${momentOf(times[times.length - 1]!, times)}`;
  return `${label}, ${span}: ${parts.join("; ")}${layers.length > 0 ? `; ${layers.length} layers` : ""}. Arrows move in time and among layers.`;
}
