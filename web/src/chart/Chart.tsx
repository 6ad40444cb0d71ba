// uPlot, wrapped once: a common cursor, gaps that stay gaps, predictions dashed with a band, events over every chart, the same as a table and
// in one sentence.

import { useComputedColorScheme } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, type MouseEvent, useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { si } from "../lib/format";
import { AsTable } from "./AsTable";
import { Foot } from "./Foot";
import { MarkLinks } from "./MarkLinks";
import { momentOf } from "./axis";
import { gaps } from "./gaps";
import { type Mark, markAt } from "./marks";
import { type Drawn, options } from "./plot";
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

export interface ChartProps {
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
const LEAST_TABLE = 200;

export function Chart(props: ChartProps) {
  const { label, times, lines, format = si, formatRight = si, height = HEIGHT } = props;
  const [asTable, setAsTable] = useState(false);
  const told = useMemo(() => summary(label, times, lines, format), [label, times, lines, format]);
  const [from, to] = [props.from ?? times[0] ?? 0, props.to ?? times[times.length - 1] ?? 0];
  const missing = useMemo(() => gaps(times, lines.map((line) => line.values), from, to), [times, lines, from, to]);
  return (
    <figure className="chart" data-testid={props.testId}>
      {asTable ? (
        <AsTable
          {...{ label, times }}
          columns={lines.map(({ name, values, scale }) => ({ name, values, format: scale === "right" ? formatRight : format }))}
          height={Math.max(height, LEAST_TABLE)}
        />
      ) : (
        <Canvas {...props} gaps={missing} told={told} />
      )}
      <Foot keys={lines} gaps={missing.length > 0} asTable={asTable} onSwitch={setAsTable} />
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

function Canvas(props: Drawn & { told: string }) {
  const { times, lines, height = HEIGHT, marks = [] } = props;
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const scheme = useComputedColorScheme("light");
  const navigate = useNavigate();
  const latest = useRef<Drawn>(props);
  latest.current = props;
  const [hover, setHover] = useState<number | null>(null);
  // Of charts that share a cursor the one that is moved by keys is heard.
  const [keyed, setKeyed] = useState(false);

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
    setKeyed(true);
    moveTo(made, times[Math.max(0, Math.min(times.length - 1, to))]!);
  };
  const markUnder = (event: MouseEvent) => {
    const made = chart.current;
    return made && markAt(marks, event.clientX - made.over.getBoundingClientRect().left, (at) => made.valToPos(at, "x"));
  };
  const onMove = (event: MouseEvent) => {
    if (chart.current) chart.current.over.style.cursor = markUnder(event) ? "pointer" : "";
  };
  const onClick = (event: MouseEvent) => {
    const mark = markUnder(event);
    if (mark?.seq !== undefined) void navigate({ to: "/events", search: { event: String(mark.seq) } });
  };

  return (
    <>
      <div
        ref={host}
        className="chart-canvas"
        role="img"
        aria-label={props.told}
        tabIndex={0}
        onKeyDown={onKey}
        onBlur={() => setKeyed(false)}
        onMouseMove={onMove}
        onClick={onClick}
        style={{ height }}
      />
      <Readout {...props} at={hover} heard={keyed} />
    </>
  );
}

/** Moves the cursor to a moment, on all charts that share it: the types leave out that it may be told to others. */
function moveTo(made: uPlot, at: number) {
  const move = made.setCursor as (to: { left: number; top: number }, hooks: boolean, others: boolean) => void;
  // A measurement may stand for time before the axis begins.
  const left = Math.max(0, Math.min(made.over.clientWidth, made.valToPos(at, "x")));
  move({ left, top: 0 }, true, true);
}

/** The values under the cursor, and what happened there. */
function Readout({ times, lines, format = si, formatRight = si, marks = [], at, heard }: ChartProps & { at: number | null; heard: boolean }) {
  if (at === null || times[at] === undefined) return <p className="chart-readout" />;
  const values = lines.map((line) => {
    const value = line.values[at];
    const form = line.scale === "right" ? formatRight : format;
    return `${line.name} ${value == null ? "–" : form(value)}`;
  });
  const step = times.length > 1 ? Math.abs(times[1]! - times[0]!) : 1;
  const near = marks.filter((mark) => Math.abs(mark.at - times[at]!) <= step * 2);
  return (
    <p className="chart-readout" aria-live={heard ? "polite" : "off"}>
      {[momentOf(times[at]!, times), ...values].join(" · ")}
      <MarkLinks marks={near} />
    </p>
  );
}
