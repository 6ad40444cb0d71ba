// What a job makes of its GPUs over time, and beside it why it has so many, what they cost and what its last change brought.

import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useRef } from "react";
import { colourOf } from "../../lib/colour";
import { serverNow } from "../../lib/clock";
import { count } from "../../lib/format";
import { Clocked } from "../../parts/Clocked";
import { Empty, Panel } from "../../parts/Panel";
import type { TabProps } from "./JobPage";
import { Charts } from "./Charts";
import { HoursSpent } from "./HoursSpent";
import { LastChange } from "./LastChange";
import { Ribbon } from "./Ribbon";
import { WhySize } from "./WhySize";
import { type JobDetail, SPANS, type Span, hasEnded, useAllocations, useMarkedEvents, useSeries } from "./asks";
import { marksOf } from "./marks";
import { seconds, segments, track } from "./shape";

const NONE: never[] = [];
const NAMES = Object.keys(SPANS) as Span[];
const WORDS: Record<Span, string> = { "1h": "1 h", "24h": "24 h", all: "all its life" };

export default function GoodputTab(props: TabProps) {
  return (
    <Clocked at={props.at} height={620}>
      <Goodput {...props} />
    </Clocked>
  );
}

function Goodput({ job, at }: TabProps) {
  const { span = "all" } = useSearch({ from: "/jobs/$id" });
  const navigate = useNavigate();
  const look = (back: Span) => void navigate({ to: ".", search: (before) => ({ ...before, span: back }), replace: true, resetScroll: false });
  const series = useSeries(job, span, at);
  // What stands beside the charts is of all its life, however little of it they show.
  const whole = useSeries(job, "all", at).data ?? NONE;
  const allocations = useAllocations(job, at);
  const events = useMarkedEvents(job, at);
  const charts = useRef<HTMLDivElement>(null);
  const points = series.data;
  const held = allocations.data;

  const shown = useMemo(() => {
    if (!points) return undefined;
    const to = endOf(job, at);
    const back = SPANS[span];
    // The first measurement stands for an interval that may have begun before the job came.
    const begins = Math.min(seconds(job.submitted_at), points[0] ? seconds(points[0].at) : Number.POSITIVE_INFINITY);
    const from = Math.max(begins, back ? to - back / 1_000 : 0);
    return { from, to, track: track(points, to), segments: segments(held ?? NONE, points, to).filter((one) => one.to > from) };
    // The axis goes on with the measurements, not with the clock.
  }, [points, held, span, at, job.ended_at, job.submitted_at]);
  const marks = useMemo(() => marksOf(job.name, events.data ?? NONE), [job.name, events.data]);

  return (
    <div className="grid">
      <div className="span-8 stack">
        <Panel
          title="Over time"
          id="job-charts"
          note={points && `${count(points.length)} measurement${points.length === 1 ? "" : "s"}${at ? ", until then" : ""}`}
          asked={series}
          everySeconds={hasEnded(job.state) || at ? Number.POSITIVE_INFINITY : 10}
          height={620}
          tools={<SpanPicker value={span} onChange={look} />}
        >
          {() =>
            shown && (shown.track.times.length > 0 || shown.segments.length > 0) ? (
              <div ref={charts} className="job-charts">
                {shown.track.times.length > 0 ? (
                  <Charts job={job} track={shown.track} allocations={held ?? NONE} marks={marks} from={shown.from} to={shown.to} />
                ) : (
                  <Nothing job={job} span={span} />
                )}
                <Ribbon beside={charts} segments={shown.segments} marks={marks} from={shown.from} to={shown.to} colour={colourOf(job.id)} />
              </div>
            ) : (
              <Nothing job={job} span={span} />
            )
          }
        </Panel>
      </div>
      <div className="span-4 stack">
        {at ? (
          <Empty>
            Why it had so many GPUs then stands in the plans of the allocations below the charts. What they cost, and what other sizes would bring, is told of the
            present.
          </Empty>
        ) : (
          <>
            <WhySize job={job} points={whole} />
            <HoursSpent job={job} />
            <LastChange job={job} allocations={allocations} points={whole} />
          </>
        )}
      </div>
    </div>
  );
}

function SpanPicker({ value, onChange }: { value: Span; onChange: (span: Span) => void }) {
  return (
    <div className="row" role="group" aria-label="How far back">
      {NAMES.map((name) => (
        <button key={name} className="button" aria-pressed={value === name} onClick={() => onChange(name)}>
          {WORDS[name]}
        </button>
      ))}
    </div>
  );
}

/** Where the axis ends, in seconds since 1970. */
function endOf(job: JobDetail, at: string | undefined): number {
  const now = job.ended_at ? seconds(job.ended_at) : serverNow() / 1_000;
  return at ? Math.min(seconds(at), now) : now;
}

function Nothing({ job, span }: { job: JobDetail; span: Span }) {
  if (span !== "all") return <Empty>Nothing was measured in this time. Its whole life may have more.</Empty>;
  if (!job.started_at) return <Empty>It has not run yet, so nothing was measured. The tab Events tells what has happened to it.</Empty>;
  return (
    <Empty>
      Nothing was measured: the job has told of no step. Scripts tell of steps through the worker's library, or a pattern finds them in their output (
      <code>training.progress</code> of the specification).
    </Empty>
  );
}
