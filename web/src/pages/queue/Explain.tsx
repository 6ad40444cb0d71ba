// Why one job waits, and what can be done about it: beside the queue, kept in the URL.

import { Link } from "@tanstack/react-router";
import { type ReactNode, useCallback, useEffect, useRef } from "react";
import type { Explanation, Job } from "../../api/client";
import { day, duration, percent } from "../../lib/format";
import { Act, type Doing } from "../../parts/Act";
import { CopyAs } from "../../parts/CopyAs";
import { JobLink, NodeLink, PlanLink } from "../../parts/Name";
import { ForeseenOutcome } from "../../parts/Outcome";
import { ReservedSentence } from "../../parts/Reservation";
import { Failed, Panel } from "../../parts/Panel";
import { State } from "../../parts/State";
import { Ago } from "../../parts/Time";
import { type Supposed, cancel, hold, release } from "./edits";
import { Funnel } from "./Funnel";
import { type JobDetail, useExplanation, useJobDetail, useStartCalibration } from "./queries";
import { Sooner } from "./Sooner";
import { StartSentence } from "./Starts";

interface Props {
  id: string;
  /** In the whole queue, where the list has told it. */
  place: number | undefined;
  /** Whether it was opened from the keyboard or the mouse, and not by its address. */
  byHand: boolean;
  onClose: () => void;
}

export function Explain({ id, place, byHand, onClose }: Props) {
  const job = useJobDetail(id);
  const explanation = useExplanation(id);
  const close = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (byHand) close.current?.focus();
  }, [id, byHand]);
  return (
    <Panel
      title="Why it waits"
      id="explain"
      asked={explanation}
      everySeconds={15}
      height={400}
      tools={
        <button ref={close} className="button" onClick={onClose} title="Esc">
          Close
        </button>
      }
    >
      {(why) => (
        <div className="stack queue-explain">
          {job.error && <Failed error={job.error} asked={job} />}
          {job.data && <Who job={job.data} place={place} />}
          <p className="queue-headline" data-testid="headline">
            <ReservedSentence code={why.reasons[0]?.code}>{why.headline}</ReservedSentence>
          </p>
          {job.data?.state === "queued" && <Start explanation={why} job={job.data} />}
          {job.data && <Doings job={job.data} />}
          {job.data?.state === "queued" ? (
            <>
              {(why.funnel ?? []).length > 0 && <Funnel stages={why.funnel!} least={job.data.gpus_min} />}
              <Sooner explanation={why} job={job.data} />
            </>
          ) : (
            job.data && <NotWaiting job={job.data} />
          )}
          <Reasons of={why} />
          <Limits of={why} />
          <Failure of={why} id={id} />
          {why.plan_id && (
            <p className="muted">
              as decided in plan <PlanLink id={why.plan_id} />
            </p>
          )}
        </div>
      )}
    </Panel>
  );
}

function Who({ job, place }: { job: JobDetail; place: number | undefined }) {
  return (
    <>
      <div className="queue-who">
        <JobLink id={job.id} name={job.name} />
        <State state={job.state} cause={job.state_cause} />
      </div>
      <p className="muted row">
        {place !== undefined && <span>place {place}</span>}
        <span>
          {job.gpus_min === job.gpus_max ? job.gpus_min : `${job.gpus_min}–${job.gpus_max}`} GPUs
        </span>
        <span>priority {job.priority} of 100</span>
        <Link to="/queue" search={(before) => ({ ...before, project: job.project })} resetScroll={false}>
          {job.project}
        </Link>
        <Link to="/queue" search={(before) => ({ ...before, user: job.owner })} resetScroll={false}>
          {job.owner}
        </Link>
        <span>
          since <Ago at={job.state_since} suffix="" />
        </span>
      </p>
      <ComesAfter of={job.after.filter((one) => one.standing === "open")} />
    </>
  );
}

/** Others that are to come so far first. */
function ComesAfter({ of }: { of: JobDetail["after"] }) {
  if (of.length === 0) return null;
  return (
    <ul className="row queue-after" aria-label="comes after">
      {of.map((one, index) => (
        <li key={one.job_id ?? one.array_id ?? index} className="row">
          <span className="muted">waits for the {one.on} of</span>
          {one.job_id ? <JobLink id={one.job_id} name={one.name ?? null} /> : (one.name ?? "a job that is not yours to see")}
          {one.state && <State state={one.state} />}
        </li>
      ))}
    </ul>
  );
}

function NotWaiting({ job }: { job: Job }) {
  return (
    <p>
      It does not wait for GPUs {job.state === "held" ? "as long as it is held" : "any more"}.{" "}
      <Link to="/jobs/$id" params={{ id: job.id }}>
        Go to the job
      </Link>
    </p>
  );
}

/** When it starts, and how far such predictions could be believed. */
function Start({ explanation, job }: { explanation: Explanation; job: JobDetail }) {
  const told = explanation.predicted_start ?? job.waiting ?? {};
  const why = explanation.predicted_start?.reason;
  const { data } = useStartCalibration();
  const all = data?.all;
  return (
    <div data-testid="start">
      <StartSentence of={told} why={why} />
      {all && all.predictions > 0 && all.coverage != null && (
        <p className="muted">
          Of the {all.predictions} starts predicted since {day(data.from)}, {percent(all.coverage)} came within their band
          {all.median_error_seconds != null && `; half were off by less than ${duration(all.median_error_seconds)}`}
          {all.late > 0 && `; ${all.late} are late`}. <Link to="/goodput">How predictions fare</Link>
        </p>
      )}
    </div>
  );
}

function Doings({ job }: { job: Job }) {
  const { id } = job;
  const onHold = useCallback((doing: Doing) => hold(id, doing), [id]);
  const onRelease = useCallback((doing: Doing) => release(id, doing), [id]);
  const onCancel = useCallback((doing: Doing) => cancel(id, doing), [id]);
  const effect = (after: Supposed): ReactNode => <ForeseenOutcome of={after.foreseen} />;
  const ended = job.ended_at != null;
  return (
    <div className="row">
      {!ended && (
        <>
          {job.state === "held" ? (
            <Act label="Release" title={`Let ${job.name} run again`} role="user" request={onRelease} effect={effect}>
              <CopyAs command={`headway job release ${id}`} />
            </Act>
          ) : (
            <Act label="Hold" title={`Keep ${job.name} from running until it is released`} role="user" request={onHold} effect={effect}>
              <CopyAs command={`headway job hold ${id}`} />
            </Act>
          )}
          <Act label="Cancel" title={`Cancel ${job.name}`} role="user" danger request={onCancel} effect={effect}>
            <CopyAs command={`headway cancel ${id}`} />
          </Act>
        </>
      )}
      <CopyAs command={`headway why ${id}`} path={`/api/v1/jobs/${id}/explain`} />
    </div>
  );
}

function Reasons({ of }: { of: Explanation }) {
  if (of.reasons.length === 0) return null;
  return (
    <section aria-label="Reasons" data-testid="reasons">
      <h3>
        Reasons <span className="muted">● lifting it alone would change the outcome</span>
      </h3>
      <ul className="queue-reasons">
        {of.reasons.map((reason, index) => (
          <li key={`${reason.code}.${index}`}>
            <span aria-hidden>{reason.binding ? "●" : "○"}</span>
            <span className="hidden-text">{reason.binding ? "binding:" : "not binding:"}</span>
            <span>
              <b className={reason.code === "never" ? "bad" : undefined}>{reason.code.replaceAll("_", " ")}</b> <ReservedSentence code={reason.code}>{reason.detail}</ReservedSentence>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Limits({ of }: { of: Explanation }) {
  const limits = of.limits ?? [];
  if (limits.length === 0) return null;
  return (
    <section aria-label="What is scarce" data-testid="limits">
      <h3>What is scarce</h3>
      <ul className="queue-reasons">
        {limits.map((limit) => (
          <li key={limit.of}>
            <span aria-hidden>–</span>
            <span>
              <b>{limit.of}</b>: {Math.round(limit.needed)} more needed, {Math.round(limit.left)} left; others would lose {limit.price.toFixed(2)} of the
              objective by it
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Failure({ of: { last_failure: failure }, id }: { of: Explanation; id: string }) {
  if (!failure) return null;
  return (
    <section aria-label="Last failure">
      <h3>Its last attempt failed</h3>
      <p className="queue-failure">
        <Ago at={failure.at} />
        {failure.node && (
          <>
            {" "}
            on <NodeLink node={failure.node} />
          </>
        )}
        {failure.exit_code != null && `, exit code ${failure.exit_code}`}: {failure.message}{" "}
        <Link to="/jobs/$id" params={{ id }} search={{ tab: "logs" }}>
          its log
        </Link>
      </p>
    </section>
  );
}
