// uPlot, wrapped once: a common cursor, gaps that stay gaps, predictions dashed with a band, events over every chart, the same as a table and
// in one sentence.

import { useComputedColorScheme } from "@mantine/core";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { si } from "../lib/format";
import { momentOf, timeTicks } from "./axis";
import { Foot } from "./Foot";
import "./chart.css";

export interface Line {
  name: string;
  /** As CSS takes it; a variable of the theme, mostly. */
  colour: string;
  /** One value for each of the chart's times; null where nothing was measured. */
  values: (number | null)[];
  dashed?: boolean;
  /** Painted down to zero. */
  area?: boolean;
  /** Constant between the points. */
  stepped?: boolean;
  scale?: "right";
  /** Between these the truth lies, p10 to p90 or the like. */
  band?: { low: (number | null)[]; high: (number | null)[] };
}

/** Something that happened, drawn over the chart. */
export interface Mark {
  /** Seconds since 1970. */
  at: number;
  label: string;
  tone: "plain" | "good" | "warn" | "bad";
}

interface Props {
  /** What it shows, and of whom, in a few words. */
  label: string;
  /** Seconds since 1970, rising. */
  times: number[];
  lines: Line[];
  marks?: Mark[];
  height?: number;
  /** Charts of one name share their cursor. */
  sync?: string;
  format?: (value: number) => string;
  formatRight?: (value: number) => string;
  log?: boolean;
  /** The values' axis begins at zero; that is so if absent. */
  fromZero?: boolean;
  from?: number;
  to?: number;
  testId?: string;
}

const HEIGHT = 160;
const TABLE_ROWS = 200;

export function Chart(props: Props) {
  const { label, times, lines, format = si } = props;
  const [asTable, setAsTable] = useState(false);
  const told = useMemo(() => summary(label, times, lines, format), [label, times, lines, format]);
  return (
    <figure className="chart" data-testid={props.testId}>
      {asTable ? <AsTable {...props} /> : <Canvas {...props} told={told} />}
      <Foot keys={lines} asTable={asTable} onSwitch={setAsTable} />
    </figure>
  );
}

/** One sentence for who does not see the chart. */
function summary(label: string, times: number[], lines: Line[], format: (value: number) => string): string {
  if (times.length === 0) return `${label}: nothing was measured.`;
  const parts = lines.map((line) => {
    const known = line.values.filter((value): value is number => value !== null);
    if (known.length === 0) return `${line.name} was not measured`;
    const last = line.values[line.values.length - 1];
    const range = `between ${format(Math.min(...known))} and ${format(Math.max(...known))}`;
    return `${line.name} ${range}${last == null ? "" : `, now ${format(last)}`}`;
  });
  return `${label}, ${momentOf(times[0]!, times)} to ${momentOf(times[times.length - 1]!, times)}: ${parts.join("; ")}.`;
}

/** A colour of the theme, as canvas takes it. */
function paint(colour: string, style: CSSStyleDeclaration): string {
  const variable = /^var\((--[\w-]+)\)$/.exec(colour)?.[1];
  return variable ? style.getPropertyValue(variable).trim() : colour;
}

function Canvas(props: Props & { told: string }) {
  const { times, lines, height = HEIGHT } = props;
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const scheme = useComputedColorScheme("light");
  const latest = useRef(props);
  latest.current = props;
  const [hover, setHover] = useState<number | null>(null);

  const shape = JSON.stringify([
    lines.map(({ name, colour, dashed, area, stepped, scale, band }) => [name, colour, dashed, area, stepped, scale, band !== undefined]),
    ...[scheme, height, props.log, props.fromZero, props.sync],
  ]);
  const data = useMemo(() => {
    const columns = lines.flatMap((line) => [line.values, ...(line.band ? [line.band.low, line.band.high] : [])]);
    return [times, ...columns] as uPlot.AlignedData;
  }, [times, lines]);

  // Built anew when its lines or its theme change, and only fed otherwise.
  useEffect(() => {
    const box = host.current;
    if (!box) return;
    const made = new uPlot(options(latest, box.clientWidth, height, setHover), data, box);
    chart.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height }));
    resize.observe(box);
    return () => {
      resize.disconnect();
      made.destroy();
      chart.current = null;
    };
    // `shape` stands for everything that the options are made from.
  }, [shape]);

  useEffect(() => {
    chart.current?.setData(data);
  }, [data, props.from, props.to]);
  useEffect(() => {
    chart.current?.redraw(false, false);
  }, [props.marks]);

  const onKey = (event: KeyboardEvent) => {
    const made = chart.current;
    if (!made || times.length === 0) return;
    const at = made.cursor.idx ?? times.length - 1;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: times.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(times.length - 1, to));
    made.setCursor({ left: made.valToPos(times[index]!, "x"), top: 0 });
  };

  return (
    <>
      <div ref={host} className="chart-canvas" role="img" aria-label={props.told} tabIndex={0} onKeyDown={onKey} style={{ height }} />
      <Readout {...props} at={hover} />
    </>
  );
}

/** The values under the cursor. */
function Readout({ times, lines, format = si, formatRight = si, marks = [], at }: Props & { at: number | null }) {
  if (at === null || times[at] === undefined) return <p className="chart-readout" />;
  const values = lines.map((line) => {
    const value = line.values[at];
    const form = line.scale === "right" ? formatRight : format;
    return `${line.name} ${value == null ? "–" : form(value)}`;
  });
  const step = times.length > 1 ? Math.abs(times[1]! - times[0]!) : 1;
  const near = marks.filter((mark) => Math.abs(mark.at - times[at]!) <= step * 2).map((mark) => mark.label);
  return <p className="chart-readout">{[momentOf(times[at]!, times), ...values, ...near].join(" · ")}</p>;
}

function options(latest: { current: Props }, width: number, height: number, onHover: (at: number | null) => void): uPlot.Options {
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
    if (!fromZero) return low === high ? [low * 0.9, high * 1.1 || 1] : [low - (high - low) * 0.1, high + (high - low) * 0.1];
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
      points: { show: false },
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
    cursor: { y: false, points: { size: 5 }, ...(sync ? { sync: { key: sync } } : {}) },
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
      draw: [(made) => drawMarks(made, latest.current.marks ?? [], style)],
    },
  };
}

/** No closer than 70 pixels. */
function ticksOf(made: uPlot, low: number, high: number) {
  return timeTicks(low, high, Math.max(1, Math.floor(made.width / 70)));
}

const TONES: Record<Mark["tone"], string> = { plain: "var(--edge)", good: "var(--good)", warn: "var(--warn)", bad: "var(--bad)" };

function drawMarks(made: uPlot, marks: Mark[], style: CSSStyleDeclaration) {
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

function AsTable({ times, lines, format = si, formatRight = si, height = HEIGHT, label }: Props) {
  const first = Math.max(0, times.length - TABLE_ROWS);
  return (
    <div className="chart-table" style={{ maxHeight: Math.max(height, 200) }} tabIndex={0} role="region" aria-label={`${label}, as a table`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {lines.map((line) => (
              <th scope="col" key={line.name} className="number">
                {line.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times.slice(first).map((at, index) => (
            <tr key={at}>
              <td>{momentOf(at, times)}</td>
              {lines.map((line) => {
                const value = line.values[first + index];
                return (
                  <td key={line.name} className="number">
                    {value == null ? "–" : (line.scale === "right" ? formatRight : format)(value)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {first > 0 && <p className="muted">the last {TABLE_ROWS} of {times.length}</p>}
    </div>
  );
}
