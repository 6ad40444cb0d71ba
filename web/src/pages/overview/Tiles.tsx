// The six figures of the present: each of all that the server counts, with what it is a part of and how it went.

import { Link } from "@tanstack/react-router";
import type { Overview } from "../../api/client";
import { onSteps, stepsSince } from "../../chart/grid";
import { brief, count, duration, gpuHours, percent, si, times } from "../../lib/format";
import { idleGpus } from "../../lib/incident";
import { useNow } from "../../lib/clock";
import { PlanLink } from "../../parts/Name";
import { type Asked, Failed, Panel } from "../../parts/Panel";
import { type Delta, Tile, changeOf } from "../../parts/Tile";
import { WINDOWS, type WindowName } from "../../parts/WindowPicker";
import { MfuTile } from "../goodput/MfuTile";
import { causeName } from "./Waterfall";
import { lost } from "./account";
import { type ClusterPoint, type Figures, type Usage, useWaits } from "./asked";

interface Props {
  overview: Asked<Overview>;
  figures: Asked<Figures>;
  ledger: Asked<Usage>;
  before: Asked<Usage>;
  window: WindowName;
}

/** How a figure went over the window, and against the one before it. */
interface Course {
  spark: { values: (number | null)[]; label: string } | undefined;
  delta: Delta | undefined;
}

/** What a tile follows through the window, under which name. */
type Pick = (point: ClusterPoint) => number | null | undefined;

function courseOf(figures: Figures | undefined, window: WindowName) {
  const { words, seconds } = WINDOWS[window];
  return (name: string, pick: Pick, better?: Delta["better"]): Course => {
    if (!figures) return { spark: undefined, delta: undefined };
    const { at, stepSeconds, points, before } = figures;
    const from = new Date(Date.parse(at) - seconds * 1_000).toISOString();
    const times = stepsSince(from, at, stepSeconds, points);
    const values = onSteps(points, stepSeconds, times, pick);
    const share = changeOf(values, before.map((point) => pick(point) ?? null));
    return {
      spark: { values, label: `${name} over the ${times.length * stepSeconds < seconds ? duration(times.length * stepSeconds) : words} before` },
      delta: share === undefined ? undefined : { share, than: `the ${words} before those`, ...(better ? { better } : {}) },
    };
  };
}

export function Tiles({ overview, figures, ledger, before, window }: Props) {
  const course = courseOf(figures.data, window);
  return (
    <Panel
      title="Now"
      note={`with the ${WINDOWS[window].words} before as a line, their mean against that of as long a time before`}
      id="tiles"
      className="span-12"
      asked={overview}
    >
      {(now) => (
        <>
          <div className="tiles">
            <Goodput now={now} course={course("goodput", (point) => point.goodput_tokens_per_second, "more")} points={figures.data?.points} />
            <Mfu now={now} course={course("goodput MFU", (point) => point.goodput_mfu, "more")} />
            <Gpus now={now} course={course("busy GPUs", (point) => point.gpus_busy)} />
            <Waiting now={now} window={window} course={course("GPUs that waiting jobs ask for", (point) => point.gpus_waited_for, "less")} />
            <Lost ledger={ledger.data} before={before.data} window={window} />
            <Planning now={now} />
          </div>
          {!overview.error && figures.error && <Failed error={figures.error} asked={figures} />}
          {!overview.error && ledger.error && <Failed error={ledger.error} asked={ledger} />}
        </>
      )}
    </Panel>
  );
}

function Goodput({ now, course, points = [] }: { now: Overview; course: Course; points: ClusterPoint[] | undefined }) {
  const relative = points.reduce<number | null>((last, point) => point.goodput_relative ?? last, null);
  return (
    <Tile
      testId="tile-goodput"
      title={<Link to="/goodput">Goodput</Link>}
      value={si(now.goodput_tokens_per_second)}
      unit="reference tokens/s"
      note={
        relative === null ? (
          `from ${si(now.throughput_tokens_per_second)} raw tokens/s`
        ) : (
          <span title="speed-up over a static fair share, per job that runs or waits: the newest step">{times(relative)} an equal split, per job</span>
        )
      }
      {...course}
    />
  );
}

function Mfu({ now, course }: { now: Overview; course: Course }) {
  const { gpus_healthy: healthy, gpus_by_activity: by } = now;
  return (
    <MfuTile now={now} title={<Link to="/goodput">Goodput MFU</Link>} testId="tile-mfu" {...course}>
      <p className="muted">
        {count(by.training ?? 0)} of {count(healthy)} healthy GPUs train{healthy > 0 && ` (${percent((by.training ?? 0) / healthy)})`}
      </p>
    </MfuTile>
  );
}

function Gpus({ now, course }: { now: Overview; course: Course }) {
  return (
    <Tile
      testId="tile-gpus"
      title={<Link to="/cluster">GPUs busy</Link>}
      value={count(now.gpus_busy)}
      unit={`of ${count(now.gpus_healthy)} healthy`}
      note={`${count(now.gpus_total)} in all, ${count(now.nodes_available)} of ${count(now.nodes_total)} nodes there`}
      {...course}
    >
      <p className="muted">
        <Link to="/jobs" search={{ state: "running" }}>
          {count(now.jobs_by_state.running ?? 0)} jobs run
        </Link>
      </p>
    </Tile>
  );
}

function Waiting({ now, window, course }: { now: Overview; window: WindowName; course: Course }) {
  const waits = useWaits(window).data;
  return (
    <Tile
      testId="tile-waiting"
      title={<Link to="/queue">Waiting</Link>}
      value={count(now.jobs_by_state.queued ?? 0)}
      unit="jobs"
      note={`for ${count(now.gpus_waited_for)} GPUs at least, while ${count(idleGpus(now))} are idle`}
      {...course}
    >
      {waits && waits.p50_seconds != null && (
        <p className="muted" data-testid="queue-waits" title={`jobs that got their first GPUs in the ${WINDOWS[window].words} before`}>
          the {count(waits.jobs)} that started waited {duration(waits.p50_seconds)} in the median{tailOf(waits)}
        </p>
      )}
    </Tile>
  );
}

/** What the unlucky waited, where there are enough of them to say so. */
function tailOf({ jobs, p90_seconds: p90, p99_seconds: p99 }: { jobs: number; p90_seconds?: number | null; p99_seconds?: number | null }): string {
  if (jobs >= 100 && p99 != null) return `; 1 in 100 more than ${duration(p99)}`;
  if (jobs >= 10 && p90 != null) return `; 1 in 10 more than ${duration(p90)}`;
  return "";
}

function Lost({ ledger, before, window }: { ledger: Usage | undefined; before: Usage | undefined; window: WindowName }) {
  const { words } = WINDOWS[window];
  const title = (
    <Link to="/reports" search={{ tab: "usage", by: "cause" }}>
      GPU-hours lost
    </Link>
  );
  if (!ledger) return <Tile testId="tile-lost" title={title} value="–" note={`of the ${words} before`} />;
  const { gpuHours: hours, causes } = lost(ledger);
  // Of each GPU-hour that was held: the cluster may be younger than two windows.
  const [share, then] = [hours / ledger.total_gpu_hours, before && lost(before).gpuHours / before.total_gpu_hours];
  const known = then !== undefined && then > 0 && Number.isFinite(share);
  const delta: Delta | undefined = known ? { share: share / then - 1, better: "less", than: `the ${words} before those, per GPU-hour held` } : undefined;
  const worst = causes.slice(0, 2).map(([cause, lostTo]) => `${causeName(cause)} ${gpuHours(lostTo)}`);
  return (
    <Tile
      testId="tile-lost"
      title={title}
      value={gpuHours(hours).replace(" GPU-h", "")}
      unit={`of ${gpuHours(ledger.total_gpu_hours)} that jobs held`}
      note={worst.length > 0 ? worst.join(", ") : `in the ${words} before`}
      spark={{ values: wastedGpus(ledger), label: `GPUs that were held without getting on, over the ${words} before` }}
      delta={delta}
    />
  );
}

/** Step by step, GPU-hours over hours: the last step has hardly begun. */
function wastedGpus({ from, to, steps, step_seconds: length }: Usage): (number | null)[] {
  const step = length ?? 60;
  const [begin, end] = [Date.parse(from) / 1_000, Date.parse(to) / 1_000];
  const times = stepsSince(from, to, step, steps ?? []);
  const hours = onSteps(steps ?? [], step, times, ({ items }) => items.reduce((sum, row) => sum + (row.cause === "useful" ? 0 : row.gpu_hours), 0));
  return hours.map((held, index) => {
    const seconds = Math.min(times[index]! + step, end) - Math.max(times[index]!, begin);
    return held === null || seconds <= 0 ? null : (held * 3_600) / seconds;
  });
}

const MODES: Record<Overview["policy_mode"], string> = { auto: "by itself", advisory: "with approval", paused: "paused" };

function Planning({ now }: { now: Overview }) {
  const clock = useNow();
  const { planner, plans_waiting: waiting, plan_id: plan } = now;
  const first = waiting[0];
  const at = planner?.newest_plan_at;
  const takes = planner?.round_median_seconds == null ? "" : `, a round takes ${brief(planner.round_median_seconds)}`;
  return (
    <Tile
      testId="tile-plan"
      title={<Link to="/plan">Plan</Link>}
      value={waiting.length > 0 ? count(waiting.length) : MODES[now.policy_mode]}
      unit={waiting.length > 0 ? "wait for approval" : ""}
      note={at ? `the newest is ${duration((clock - Date.parse(at)) / 1_000)} old${takes}` : "no plan has been made yet"}
    >
      <p className="muted">
        {first ? (
          <Link to="/plan" search={{ plan: first }}>
            look at it
          </Link>
        ) : plan ? (
          <span className="row">
            carried out: <PlanLink id={plan} />
          </span>
        ) : (
          "none is being carried out"
        )}
      </p>
    </Tile>
  );
}
