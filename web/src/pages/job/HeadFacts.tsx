// What a job is, has and costs, and why it stands where it stands.

import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useNow } from "../../lib/clock";
import { absolute, duration, fixed, gpuHours, layoutOf, percent, si, times } from "../../lib/format";
import { JobLink, Middle, NodeLink } from "../../parts/Name";
import { ReservedSentence } from "../../parts/Reservation";
import { Ago, Until } from "../../parts/Time";
import { type JobDetail, hasEnded, useEnd } from "./asks";
import { batchOf, gpusOf, sentence } from "./words";

/** Names of nodes that are shown; the others stand in the tab of allocations. */
const NODES_SHOWN = 3;

export function HeadFacts({ job }: { job: JobDetail }) {
  const live = !hasEnded(job.state);
  return (
    <dl className="job-facts" data-testid="job-facts">
      <Fact name="GPUs">
        {job.gpus > 0 ? gpusOf(job.gpus) : "none"} <span className="muted">of {rangeOf(job)} wanted</span>
      </Fact>
      {job.layout && (
        <Fact name="Layout">
          <span className="mono">{layoutOf(job.layout, job.execution)}</span>
        </Fact>
      )}
      {batchOf(job) && <Fact name="Batch">{batchOf(job)}</Fact>}
      {job.goodput_tokens_per_second != null && (
        <Fact name="Goodput">
          {si(job.goodput_tokens_per_second)} <span className="muted">ref. tokens/s, {times(job.efficiency)} per token</span>
        </Fact>
      )}
      {job.target_tokens != null && (
        <Fact name="Progress">
          {percent(job.progress_fraction)} <span className="muted">of {si(job.target_tokens)} tokens</span>
        </Fact>
      )}
      {live ? <Eta job={job} /> : job.ended_at && <Fact name="Ended"><Ago at={job.ended_at} /></Fact>}
      {job.deadline && (
        <Fact name="Deadline">
          <Until at={job.deadline} />
        </Fact>
      )}
      <Fact name="Cost so far">
        {gpuHours(job.used_gpu_hours)}
        {job.budget_gpu_hours != null && <span className="muted"> of a budget of {gpuHours(job.budget_gpu_hours)}</span>}
      </Fact>
      <Fact name="Owner">
        <Link to="/jobs" search={{ user: job.owner }}>
          <Middle text={job.owner} />
        </Link>
      </Fact>
      <Fact name="Project">
        <Link to="/jobs" search={{ project: job.project }}>
          <Middle text={job.project} />
        </Link>
      </Fact>
      {job.nodes.length > 0 && (
        <Fact name={job.nodes.length === 1 ? "Node" : `${job.nodes.length} nodes`}>
          {job.nodes.slice(0, NODES_SHOWN).map((node) => (
            <NodeLink key={node} node={node} />
          ))}
          {job.nodes.length > NODES_SHOWN && (
            <Link to="." search={(before) => ({ ...before, tab: "allocations" as const })}>
              and {job.nodes.length - NODES_SHOWN} more
            </Link>
          )}
        </Fact>
      )}
      {job.array && (
        <Fact name="Array">
          <Link to="/jobs" search={{ q: job.array.name }}>
            {job.array.name}
          </Link>{" "}
          <span className="muted">
            index {job.array.index}, of {job.array.count}
          </span>
        </Fact>
      )}
    </dl>
  );
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** "8–128", or "8, 16, 32" where only some sizes will do. */
function rangeOf(job: JobDetail): string {
  if (job.gpu_sizes.length > 0) return job.gpu_sizes.join(", ");
  return job.gpus_min === job.gpus_max ? String(job.gpus_min) : `${job.gpus_min}–${job.gpus_max}`;
}

/** The forecast with its deciles where there is one, else what is left at the present rate. */
function Eta({ job }: { job: JobDetail }) {
  const end = useEnd(job, undefined).data;
  const now = useNow();
  const left = (at: string) => duration((Date.parse(at) - now) / 1_000);
  if (end?.p50) {
    return (
      <Fact name="ETA">
        <span title={absolute(end.p50)}>{left(end.p50)}</span>{" "}
        {end.p10 && (
          <span className="muted" title="first and last decile of the forecast">
            ({left(end.p10)} {end.p90 ? `– ${left(end.p90)}` : "or later"})
          </span>
        )}
      </Fact>
    );
  }
  if (job.eta_seconds == null) return null;
  return (
    <Fact name="ETA">
      {duration(job.eta_seconds)} <span className="muted">at the present rate</span>
    </Fact>
  );
}

/** How much a failure matters in the state that the job is in now. */
const EDGES: Record<string, string> = { failed: "job-edge-bad", running: "job-edge-plain", succeeded: "job-edge-plain" };

/** What a person should know of it at once: why it waits, what it failed of, for whom it waits, that it is pinned. */
export function Notices({ job }: { job: JobDetail }) {
  const open = job.after.filter((one) => one.standing === "open");
  const ended = hasEnded(job.state);
  const displaced = job.displaced[job.displaced.length - 1];
  return (
    <ul className="job-notices" data-testid="job-notices">
      {job.waiting && (
        <li className="job-edge-warn" data-testid="job-waiting">
          <strong>Waits:</strong> <ReservedSentence code={job.waiting.code}>{sentence(job.waiting.headline)}</ReservedSentence> <Start waiting={job.waiting} />{" "}
          <Link to="/queue" search={{ job: job.id }} className="inline">
            Why, and what would start it sooner
          </Link>
        </li>
      )}
      {!ended && job.not_before && (
        <li className="job-edge-warn">
          <strong>Not before</strong> <Until at={job.not_before} />, after a failure.
        </li>
      )}
      {open.length > 0 && (
        <li className="job-edge-warn">
          <strong>Comes after:</strong>{" "}
          {open.map((one, index) => (
            <span key={one.job_id ?? one.array_id ?? index}>
              {index > 0 && ", "}
              {one.job_id ? (
                <JobLink id={one.job_id} name={one.name} />
              ) : (
                (one.name ?? "a job that you may not see")
              )}{" "}
              <span className="muted">
                ({one.on}
                {one.state && `, ${one.state} now`})
              </span>
            </span>
          ))}
        </li>
      )}
      {job.last_failure && (
        <li className={EDGES[job.state] ?? "job-edge-warn"} data-testid="job-failure">
          <strong>Last failure</strong> <Ago at={job.last_failure.at} />: {sentence(job.last_failure.message)}
          {job.last_failure.exit_code != null && <span className="muted"> Exit code {job.last_failure.exit_code}.</span>}
          {job.last_failure.node && (
            <>
              {" "}
              It began on <NodeLink node={job.last_failure.node} />.
            </>
          )}{" "}
          {job.restarts > 0 && <span className="muted">Starts that ended in a failure of its own: {job.restarts}. </span>}
          <Link to="/jobs/$id" params={{ id: job.id }} search={{ tab: "logs", attempt: `g${job.last_failure.generation}` }}>
            Its output
          </Link>
        </li>
      )}
      {job.last_fallback && !ended && (
        <li className="job-edge-warn" data-testid="job-fallback">
          <strong>Went back</strong> <Ago at={job.last_fallback.at} /> to step {job.last_fallback.step}, not to its committed checkpoint of step {job.last_fallback.committed_step}: {job.last_fallback.lost_samples} samples are trained again.{" "}
          <Link to="/jobs/$id" params={{ id: job.id }} search={{ tab: "logs", attempt: `g${job.last_fallback.generation}` }}>
            Its output
          </Link>
        </li>
      )}
      {displaced && !ended && (
        <li className="job-edge-plain">
          <strong>Gave up GPUs</strong> <Ago at={displaced.at} /> to{" "}
          {displaced.by.map((one, index) => (
            <span key={one.job_id}>
              {index > 0 && ", "}
              <JobLink id={one.job_id} name={one.job_name} /> ({one.gpus})
            </span>
          ))}
          ; {gpuHours(displaced.lost_gpu_hours)} of its steps were lost by that.
        </li>
      )}
      {job.pin && (
        <li className="job-edge-plain">
          <strong>Pinned</strong> by {job.pin.by} <Ago at={job.pin.since} />
          {job.pin.reason && `: ${job.pin.reason}`}. Plans leave it where it is.
        </li>
      )}
      {job.report && (
        <li className="job-edge-plain" data-testid="job-report">
          <strong>In the end</strong> it {sentence(job.report.summary)}
          {job.report.advice.map((one) => (
            <span key={one.code} className="job-advice">
              {one.detail}
            </span>
          ))}
        </li>
      )}
      {job.noise_reports?.missing && (
        <li className="job-edge-plain">
          <strong>Efficiency is assumed:</strong> {sentence(job.noise_reports.missing)}
        </li>
      )}
    </ul>
  );
}

function Start({ waiting }: { waiting: NonNullable<JobDetail["waiting"]> }) {
  const now = useNow();
  const until = (at: string) => duration((Date.parse(at) - now) / 1_000);
  if (!waiting.p50) return <span className="muted">When it starts is not foretold. </span>;
  if (Date.parse(waiting.p50) < now) return <span className="muted">It was to start by now. </span>;
  return (
    <span>
      Starts <Until at={waiting.p50} />
      {waiting.p10 && <span className="muted"> ({until(waiting.p10)} {waiting.p90 ? `– ${until(waiting.p90)}` : "or later"})</span>}
      {waiting.position != null && <span className="muted">, place {fixed(waiting.position, 0)} in the line</span>}.
    </span>
  );
}
