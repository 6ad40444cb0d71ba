// Above the lanes and as wide: the axis with plans and faults, how the GPUs were used and what came of it, and reservations.

import { useNavigate } from "@tanstack/react-router";
import type { MouseEvent } from "react";
import type { components } from "../../api/schema";
import { timeTicks } from "../../chart/axis";
import { absolute, count, percent, si } from "../../lib/format";
import { TICK_SPACE } from "./paint";
import type { Mark } from "./rows";
import type { Span } from "./span";

type Schemas = components["schemas"];
type Point = Schemas["ClusterPoint"];
export type Reservation = Schemas["Reservation"];
export type PlanMark = Schemas["TimelinePlan"];

const AXIS = 32;
const STRIP = 40;
const LINE = 18;
const MOST_RESERVATIONS = 4;

interface Props {
  span: Span;
  gutter: number;
  width: number;
  plans: readonly PlanMark[];
  faults: readonly Mark[];
  reservations: readonly Reservation[];
  points: readonly Point[];
  stepSeconds: number;
  /** Why there are no figures, where that is so. */
  noFigures: string | undefined;
}

export function Strips({ span, gutter, width, plans, faults, reservations, points, stepSeconds, noFigures }: Props) {
  const x = (at: number) => ((at - span.from) / (span.to - span.from)) * width;
  const seen = points.map((point) => ({ ...point, ms: Date.parse(point.at) })).filter((point) => point.ms >= span.from - stepSeconds * 1_000 && point.ms <= span.to);
  const last = seen[seen.length - 1];
  const most = Math.max(0, ...seen.map((point) => point.goodput_tokens_per_second));
  const [shown, left] = [reservations.slice(0, MOST_RESERVATIONS), reservations.length - MOST_RESERVATIONS];
  const within = (at: number) => at >= span.from && at <= span.to;
  const navigate = useNavigate();
  const open = (event: MouseEvent, plan: string) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    void navigate({ to: "/plan", search: (before) => ({ at: before.at, plan }) });
  };
  const lines = (of: (point: Point) => number | undefined) => curves(seen, stepSeconds, x, width, of);
  return (
    <div className="timeline-strips" style={{ gridTemplateColumns: `${gutter}px ${width}px` }}>
      <span className="timeline-key muted" title="where the span begins, and the zone of the times">
        <span>{new Date(span.from).toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" })}</span>
        <span>{Intl.DateTimeFormat().resolvedOptions().timeZone}</span>
      </span>
      <div className="timeline-axis" style={{ height: AXIS }}>
        {timeTicks(span.from / 1_000, span.to / 1_000, width / TICK_SPACE).map(({ at, text }) => (
          <span key={at} style={{ left: x(at * 1_000) }}>
            {text}
          </span>
        ))}
        {faults.filter((fault) => within(fault.at)).map((fault) => (
          <i key={fault.seq} className="timeline-fault" style={{ left: x(fault.at) }} title={fault.message} />
        ))}
        {plans.filter((plan) => within(Date.parse(plan.at))).map((plan) => (
          // As plain as can be: all of them move with the axis. The table has them for the keyboard.
          <a key={plan.event} href={`/plan?plan=${plan.id}`} onClick={(event) => open(event, plan.id)} className="timeline-mark" style={{ left: x(Date.parse(plan.at)) }} title={`${absolute(plan.at)}: ${plan.message}`} tabIndex={-1}>
            <span className="hidden-text">plan</span>
          </a>
        ))}
      </div>

      <span className="timeline-key">
        <span>GPUs in use</span>
        {last && (
          <span className="muted" title="held by jobs, of those that are healthy">
            {count(Math.round(last.gpus_busy))} of {count(Math.round(last.gpus_healthy))}, {percent(last.useful_share)} training
          </span>
        )}
      </span>
      {seen.length > 0 ? (
        <svg width={width} height={STRIP} role="img" aria-label={used(seen)}>
          {lines((point) => (point.gpus_healthy > 0 ? point.gpus_busy / point.gpus_healthy : undefined)).map((curve, index) => (
            <g key={index}>
              <path d={curve.area} fill="var(--edge)" fillOpacity="0.3" />
              <path d={curve.line} fill="none" stroke="var(--edge)" />
            </g>
          ))}
          {lines((point) => point.useful_share ?? undefined).map((curve, index) => (
            <g key={index}>
              <path d={curve.area} fill="var(--c2)" fillOpacity="0.3" />
              <path d={curve.line} fill="none" stroke="var(--c2)" strokeWidth="1.5" />
            </g>
          ))}
        </svg>
      ) : (
        <p className="muted timeline-none">{noFigures ?? "No figures of this time."}</p>
      )}

      <span className="timeline-key">
        <span>Goodput</span>
        {last && (
          <span className="muted" title="reference tokens per second, at the end of the span and at most">
            {si(last.goodput_tokens_per_second)}/s, up to {si(most)}
          </span>
        )}
      </span>
      {seen.length > 0 ? (
        <svg width={width} height={STRIP} role="img" aria-label={`Goodput, up to ${si(most)} reference tokens per second`}>
          {lines((point) => (most > 0 ? point.goodput_tokens_per_second / most : undefined)).map((curve, index) => (
            <path key={index} d={curve.line} fill="none" stroke="var(--accent)" strokeWidth="1.5" />
          ))}
        </svg>
      ) : (
        <span />
      )}

      {shown.length > 0 && (
        <>
          <span className="timeline-key">
            <span>Reservations</span>
            {left > 0 && <span className="muted">{left} more in the table</span>}
          </span>
          <svg width={width} height={shown.length * LINE} role="img" aria-label={`Reservations: ${shown.map((one) => one.name).join(", ")}`}>
            {shown.map((one, index) => {
              const [begins, ends] = [Math.max(0, x(Date.parse(one.from))), Math.min(width, x(Date.parse(one.until)))];
              if (ends <= 0 || begins >= width) return null;
              return (
                <g key={one.id}>
                  <title>{reservationTold(one)}</title>
                  <rect className="timeline-reserved" x={begins + 0.5} y={index * LINE + 2.5} width={Math.max(2, ends - begins - 1)} height={LINE - 5} />
                  <text x={begins + 5} y={index * LINE + LINE / 2 + 4}>
                    {one.name}
                  </text>
                </g>
              );
            })}
          </svg>
        </>
      )}
    </div>
  );
}

export function reservationTold(one: Reservation): string {
  const whom = one.maintenance ? "maintenance, for nobody" : `for ${[...one.projects, ...one.users].join(", ") || `${one.jobs.length} jobs`}`;
  return `${one.name}, ${whom}: ${one.nodes.join(", ")}; ${absolute(one.from)} to ${absolute(one.until)}`;
}

function used(points: readonly Point[]): string {
  const shares = points.map((point) => point.useful_share).filter((share): share is number => share != null);
  if (shares.length === 0) return "GPUs in use: nothing was measured";
  return `Training GPUs over healthy ones, between ${percent(Math.min(...shares))} and ${percent(Math.max(...shares))}`;
}

/** Values between 0 and 1 as lines that end where a step is missing, each with the area below it. */
function curves(points: readonly (Point & { ms: number })[], stepSeconds: number, x: (at: number) => number, width: number, of: (point: Point) => number | undefined) {
  const runs: { x: number; y: number }[][] = [];
  let before: number | undefined;
  for (const point of points) {
    const value = of(point);
    if (value === undefined) {
      before = undefined;
      continue;
    }
    if (before === undefined || point.ms - before > stepSeconds * 1_500) runs.push([]);
    before = point.ms;
    const middle = x(point.ms + stepSeconds * 500);
    runs[runs.length - 1]!.push({ x: Math.max(-1, Math.min(width + 1, middle)), y: STRIP - 2 - Math.min(1, Math.max(0, value)) * (STRIP - 6) });
  }
  return runs.map((run) => {
    const line = run.map((at, index) => `${index === 0 ? "M" : "L"}${at.x.toFixed(1)} ${at.y.toFixed(1)}`).join("");
    return { line, area: `${line}L${run[run.length - 1]!.x.toFixed(1)} ${STRIP}L${run[0]!.x.toFixed(1)} ${STRIP}Z` };
  });
}
