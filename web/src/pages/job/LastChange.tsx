// What the newest change of GPUs or layout was promised to bring, and what came. The plan's own account of the move counts, where there is one; else
// what allocations and measurements tell.

import { useMemo } from "react";
import type { SeriesPoint } from "../../api/client";
import { duration, signedPercent, si } from "../../lib/format";
import { PlanLink } from "../../parts/Name";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import { type AllocationRecord, type JobDetail, type Move, usePlannedMove } from "./asks";
import { realised, standstill } from "./shape";
import { configurationOf, sentence } from "./words";

interface Props {
  job: JobDetail;
  allocations: Asked<AllocationRecord[]>;
  points: readonly SeriesPoint[];
}

export function LastChange({ job, allocations, points }: Props) {
  const [before, here] = [allocations.data?.at(-2), allocations.data?.at(-1)];
  return (
    <Panel title={here && !before ? "Start" : "Last change"} id="job-change" note={here && <When at={here.granted_at} />} asked={allocations} everySeconds={30}>
      {() => (here ? <Change job={job} before={before} here={here} points={points} /> : <Empty>It has had no GPUs yet, so nothing has changed.</Empty>)}
    </Panel>
  );
}

interface ChangeProps {
  job: JobDetail;
  before: AllocationRecord | undefined;
  here: AllocationRecord;
  points: readonly SeriesPoint[];
}

function Change({ job, before, here, points }: ChangeProps) {
  const planned = usePlannedMove(job, here.plan_id ?? undefined);
  const means = useMemo(() => realised(points), [points]);
  const move = planned.data ?? undefined;
  const lines = move ? byPlan(move) : byMeasurement(here, before, means);
  return (
    <>
      <p>
        {before ? `${before.gpus} → ${here.gpus} GPUs` : `${here.gpus} GPUs`}
        <span className="mono">
          {" "}
          {before?.configuration && `${configurationOf(before.configuration)} → `}
          {configurationOf(here.configuration)}
        </span>
      </p>
      <p className="muted">
        {sentence(here.cause)} {here.plan_id && <>Plan <PlanLink id={here.plan_id} />.</>}
      </p>
      <table className="job-promise">
        <thead>
          <tr>
            <th scope="col">
              <span className="hidden-text">what</span>
            </th>
            <th scope="col" className="number">
              promised
            </th>
            <th scope="col" className="number">
              came
            </th>
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <tr key={line.name}>
              <th scope="row">{line.name}</th>
              <td className="number">{line.promised}</td>
              <td className="number">{line.came}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="muted">
        {move?.outcome
          ? `The move is ${move.outcome.state}${move.outcome.measured_seconds == null ? "" : `, measured for ${duration(move.outcome.measured_seconds)}`}.`
          : "From its allocations and measurements."}{" "}
        {move?.pays_back_after_seconds != null && `It pays for its standstill after ${duration(move.pays_back_after_seconds)}.`}
      </p>
    </>
  );
}

interface Told {
  name: string;
  promised: string;
  came: string;
}

const UNKNOWN = "–";

function byPlan(move: Move): Told[] {
  const { outcome } = move;
  const [before, after] = [outcome?.goodput_before_tokens_per_second, outcome?.goodput_after_tokens_per_second];
  const starts = move.goodput_before_tokens_per_second <= 0;
  return [
    { name: "goodput, reference tokens/s", promised: si(move.goodput_after_tokens_per_second), came: si(after) },
    ...(starts
      ? []
      : [
          {
            name: "against before",
            promised: signedPercent(move.goodput_after_tokens_per_second / move.goodput_before_tokens_per_second - 1),
            came: before != null && before > 0 && after != null ? signedPercent(after / before - 1) : UNKNOWN,
          },
        ]),
    { name: starts ? "until it trained" : "standstill", promised: duration(move.downtime_seconds), came: duration(outcome?.downtime_seconds) },
  ];
}

function byMeasurement(here: AllocationRecord, before: AllocationRecord | undefined, means: ReturnType<typeof realised>): Told[] {
  const [was, is] = [before && means.get(before.generation)?.goodput, means.get(here.generation)?.goodput];
  const predicted = here.predicted_goodput_tokens_per_second;
  const stood = standstill(before, here);
  return [
    { name: "goodput, reference tokens/s", promised: predicted > 0 ? si(predicted) : UNKNOWN, came: si(is) },
    {
      name: "against before",
      promised: was && predicted > 0 ? signedPercent(predicted / was - 1) : UNKNOWN,
      came: was && is !== undefined ? signedPercent(is / was - 1) : UNKNOWN,
    },
    { name: "standstill", promised: UNKNOWN, came: duration(stood && stood.seconds - stood.waiting) },
  ];
}
