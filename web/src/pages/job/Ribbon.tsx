// What the job had when, under its charts and on their axis: a box for each configuration, as high as it had GPUs, hatched while it started. It
// follows the charts' cursor and moves it.

import { Link } from "@tanstack/react-router";
import { type RefObject, useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import { clock, count, duration, layoutOf, si } from "../../lib/format";
import { PlanLink } from "../../parts/Name";
import { When } from "../../parts/When";
import { SYNC } from "./Charts";
import type { JobMark } from "./marks";
import type { Segment } from "./shape";
import { configurationOf, gpusOf, sentence } from "./words";

interface Props {
  /** Holds the charts, whose plot area the ribbon lies under. */
  beside: RefObject<HTMLElement | null>;
  segments: Segment[];
  marks: JobMark[];
  from: number;
  to: number;
  colour: string;
}

/** Boxes keep so much of the height, however few GPUs they stand for. */
const LEAST = 0.12;
/** Of a segment; the others stand in the tab of events. */
const EVENTS_SHOWN = 3;

export function Ribbon({ beside, segments, marks, from, to, colour }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const line = useRef<HTMLDivElement>(null);
  const area = usePlotArea(beside);
  const [hovered, setHovered] = useState<number>();
  const [chosen, setChosen] = useState<string>();
  const span = Math.max(to - from, 1);
  const share = (at: number) => Math.min(1, Math.max(0, (at - from) / span));
  const most = Math.max(1, ...segments.map((segment) => segment.gpus));

  useCursor((at) => {
    if (line.current) {
      line.current.style.visibility = at === undefined ? "hidden" : "visible";
      line.current.style.left = `${(at ?? 0) * 100}%`;
    }
    const moment = at === undefined ? undefined : from + at * span;
    const index = moment === undefined ? -1 : segments.findIndex((segment) => moment >= segment.from && moment < segment.to);
    setHovered(index < 0 ? undefined : index);
  });

  const known = segments.findIndex((segment) => segment.key === chosen);
  const at = hovered ?? (known < 0 ? segments.length - 1 : known);
  const told = useMemo(() => summary(segments), [segments]);
  const fraction = (x: number) => {
    const edges = box.current?.getBoundingClientRect();
    return edges && edges.width > 0 ? (x - edges.left) / edges.width : 0;
  };

  return (
    <section aria-label="Configuration" data-testid="job-ribbon">
      <h3 className="job-chart-title">
        Configuration <span className="muted">height: GPUs, at most {count(most)}; hatched: starting; lines: events</span>
      </h3>
      <div
        ref={box}
        className="job-ribbon"
        role="img"
        aria-label={told}
        style={area && { marginLeft: area.left, width: area.width }}
        onPointerMove={(event) => moveCursor(fraction(event.clientX))}
        onPointerLeave={() => moveCursor(undefined)}
        onClick={(event) => {
          const moment = from + fraction(event.clientX) * span;
          setChosen(segments.find((segment) => moment >= segment.from && moment < segment.to)?.key);
        }}
      >
        {segments.map((segment, index) => (
          <div
            key={segment.key}
            className={`job-segment ${segment.phase} ${index === at ? "chosen" : ""}`}
            style={{
              left: `${share(segment.from) * 100}%`,
              width: `${(share(segment.to) - share(segment.from)) * 100}%`,
              height: `${Math.max(LEAST, segment.gpus / most) * 100}%`,
              ["--of" as string]: colour,
            }}
          >
            {segment.phase === "running" && (
              <span className="job-segment-words">
                {segment.gpus} {configurationOf(segment.configuration)}
              </span>
            )}
          </div>
        ))}
        {marks
          .filter((mark) => mark.at >= from && mark.at <= to)
          .map((mark) => (
            <i key={mark.seq} className={`job-mark ${mark.tone}`} style={{ left: `${share(mark.at) * 100}%` }} />
          ))}
        <div ref={line} className="job-cursor" />
      </div>
      {segments[at] && <Told segment={segments[at]} marks={marks} at={at} of={segments.length} onStep={(step) => setChosen(segments[at + step]?.key)} />}
    </section>
  );
}

/** The segment that is pointed at or was chosen last, in words and with links. */
function Told({ segment, marks, at, of, onStep }: { segment: Segment; marks: JobMark[]; at: number; of: number; onStep: (step: number) => void }) {
  const { allocation, configuration } = segment;
  const events = marks.filter((mark) => mark.at >= segment.from && mark.at < segment.to);
  return (
    <div className="job-told" data-testid="job-segment">
      <button className="button" disabled={at === 0} onClick={() => onStep(-1)} aria-label="earlier configuration" title="earlier configuration">
        ‹
      </button>
      <button className="button" disabled={at === of - 1} onClick={() => onStep(1)} aria-label="later configuration" title="later configuration">
        ›
      </button>
      <p>
        <When at={new Date(segment.from * 1_000).toISOString()} />, for {duration(segment.to - segment.from)}: <strong>{gpusOf(segment.gpus)}</strong>
        {configuration && (
          <>
            {" "}
            as <span className="mono">{layoutOf(configuration.layout, configuration.execution)}</span>, batch {count(configuration.global_batch_sequences)} in micro-batches of{" "}
            {count(configuration.micro_batch_sequences)}
          </>
        )}
        {segment.phase === "starting" && ", starting"}. <span className="muted">Generation {allocation.generation}: </span>
        {sentence(allocation.cause)} {allocation.plan_id && <>Plan <PlanLink id={allocation.plan_id} />. </>}
        {allocation.predicted_goodput_tokens_per_second > 0 && (
          <span className="muted">Predicted {si(allocation.predicted_goodput_tokens_per_second)} reference tokens/s. </span>
        )}
        {events.slice(0, EVENTS_SHOWN).map((event) => (
          <Link key={event.seq} to="/events" search={{ event: String(event.seq) }} className={`job-event ${event.tone}`} title={event.label}>
            {event.label}
          </Link>
        ))}
        {events.length > EVENTS_SHOWN && <span className="muted">{count(events.length - EVENTS_SHOWN)} more events. </span>}
        <Link to="." search={(before) => ({ ...before, tab: "allocations" as const })} className="job-all">
          All allocations
        </Link>
      </p>
    </div>
  );
}

function summary(segments: readonly Segment[]): string {
  if (segments.length === 0) return "It has had no GPUs in this time.";
  const parts = segments.filter((segment) => segment.phase === "running").slice(-10);
  const told = parts.map((segment) => `from ${clock(segment.from * 1_000)} ${gpusOf(segment.gpus)} ${configurationOf(segment.configuration)}`);
  return `The last ${parts.length} configurations: ${told.join("; ")}.`;
}

interface Area {
  left: number;
  width: number;
}

/** Where the charts have their plot area, as they have laid it out, in pixels from the left of what holds them. */
function usePlotArea(beside: RefObject<HTMLElement | null>): Area | undefined {
  const [area, setArea] = useState<Area>();
  useEffect(() => {
    const holder = beside.current;
    if (!holder) return;
    let frame = 0;
    const measure = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => {
        const plot = holder.querySelector(".u-over")?.getBoundingClientRect();
        const left = plot && plot.left - holder.getBoundingClientRect().left;
        setArea((before) => {
          if (plot === undefined || left === undefined) return undefined;
          return before?.left === left && before.width === plot.width ? before : { left, width: plot.width };
        });
      });
    };
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(holder);
    return () => {
      cancelAnimationFrame(frame);
      watch.disconnect();
    };
  }, [beside]);
  return area;
}

/** All that the group of a cursor asks of its members. */
interface Member {
  pub: (type: string, from: unknown, x: number, y: number, width: number) => void;
}

/** Tells where the charts' cursor is, as a share of their width; undefined: nowhere. */
function useCursor(onMove: (at: number | undefined) => void) {
  const latest = useRef(onMove);
  useEffect(() => {
    latest.current = onMove;
  });
  useEffect(() => {
    const group = uPlot.sync(SYNC);
    const member: Member = {
      pub: (type, _from, x, _y, width) => {
        if (type === "mousemove") latest.current(x < 0 || width <= 0 ? undefined : x / width);
      },
    };
    group.sub(member as Member & uPlot);
    return () => group.unsub(member as Member & uPlot);
  }, []);
}

/** Has the charts and the ribbon show a moment, as a share of their width. */
function moveCursor(at: number | undefined) {
  for (const plot of uPlot.sync(SYNC).plots as (uPlot | Member)[]) {
    if ("over" in plot) plot.setCursor({ left: at === undefined ? -10 : at * plot.over.clientWidth, top: at === undefined ? -10 : 0 });
    else plot.pub("mousemove", undefined, at ?? -1, 0, 1);
  }
}
