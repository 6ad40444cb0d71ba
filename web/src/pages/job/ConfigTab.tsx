// What was asked for beside what is in effect, what was changed since, who comes after, and the specification as a whole.

import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { copyText } from "../../lib/clipboard";
import { count, duration, gpuHours, layoutOf, percent, si } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { JobLink, NodeLink } from "../../parts/Name";
import { Box, Empty, Failed } from "../../parts/Panel";
import { State } from "../../parts/State";
import { When } from "../../parts/When";
import type { TabProps } from "./JobPage";
import { type JobDetail, useJobEvents } from "./asks";
import { batchOf, gpusOf } from "./words";

/** What people change of a job that exists. */
const CHANGES = "job.changed,job.resized,job.pinned,job.unpinned";

/** Of a specification what this page reads by name; the rest it shows as it is. */
interface Spec {
  resources?: { gpus?: { type?: string[] }; nodes?: unknown; topology?: { prefer?: string; require?: string } };
  training?: { layouts?: unknown; batch?: { min?: unknown; max?: unknown; policy?: string }; reference_batch?: unknown };
  limits?: { time?: string; max_restarts?: number; restartable?: boolean };
  elastic?: { min_runtime?: string; max_resizes_per_hour?: number; max_overhead_pct?: number };
}

export default function ConfigTab({ job, at }: TabProps) {
  return (
    <div className="grid">
      {at && <p className="span-12 muted">What was asked for is told as it is now, not as it was then.</p>}
      <div className="span-7 stack">
        <Box title="Asked for and in effect" id="job-effective">
          <Effective job={job} />
        </Box>
        <Around job={job} />
        <Changes job={job} at={at} />
      </div>
      <div className="span-5 stack">
        <Specification job={job} />
      </div>
    </div>
  );
}

function Effective({ job }: { job: JobDetail }) {
  const spec = (job.spec ?? {}) as Spec;
  const { training, resources, limits, elastic } = spec;
  const sizes = job.gpu_sizes.length > 0 ? job.gpu_sizes.join(", ") : `${count(job.gpus_min)} to ${count(job.gpus_max)}`;
  const reached = `${si(job.progress_tokens)} reference tokens (${percent(job.progress_fraction)}), ${si(job.seen_tokens)} seen`;
  const failures = `${job.restarts} of its own failures, ${job.disruptions} that were not its fault`;
  const moves = `${job.reconfigurations} changes of GPUs or layout, ${job.batch_changes} of the batch while it ran, ${job.preemptions} times it gave up all`;
  const rows: [string, ReactNode, ReactNode][] = [
    ["GPUs", job.gpus_min === job.gpus_max ? count(job.gpus_min) : sizes, job.gpus > 0 ? gpusOf(job.gpus) : "none now"],
    ["GPU types", resources?.gpus?.type?.join(", ") ?? "any", ""],
    ["Layout", written(training?.layouts) ?? "the script's", job.layout ? layoutOf(job.layout, job.execution) : "–"],
    ["Batch", range(training), batchOf(job) ?? "–"],
    ["Reference batch", sequences(training?.reference_batch), ""],
    ["Nodes", nodesWanted(job), job.nodes.length > 0 ? <NodeNames names={job.nodes} /> : "none now"],
    ["Target", job.target_tokens == null ? "none: it ends by itself" : `${si(job.target_tokens)} tokens (${job.target_count ?? "both"})`, reached],
    ["Priority", String(job.priority), ""],
    ["Time limit", limits?.time ?? "none", ""],
    ["Budget", job.budget_gpu_hours == null ? "none" : gpuHours(job.budget_gpu_hours), `${gpuHours(job.used_gpu_hours)} used`],
    ["Deadline", job.deadline ? <When at={job.deadline} /> : "none", job.eta_seconds == null ? "" : `${duration(job.eta_seconds)} left at the present rate`],
    ["Restarts", restarts(limits), failures],
    ["Moves", movesWanted(elastic), moves],
  ];
  return (
    <table className="job-effective" data-testid="job-effective">
      <thead>
        <tr>
          <th scope="col">
            <span className="hidden-text">what</span>
          </th>
          <th scope="col">asked for</th>
          <th scope="col">in effect</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([name, asked, effective]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{asked}</td>
            <td>{effective}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function NodeNames({ names }: { names: readonly string[] }) {
  return (
    <span className="job-names">
      {names.map((name) => (
        <NodeLink key={name} node={name} />
      ))}
    </span>
  );
}

/** Words stay as they are; what is more is written as JSON. */
function written(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "string" ? value : JSON.stringify(value).replaceAll('"', "").replaceAll(",", ", ").replaceAll(":", ": ");
}

function sequences(value: unknown): string {
  return written(value) ?? "–";
}

/** How often it may start again. */
function restarts(limits: Spec["limits"]): string {
  if (limits?.restartable === false) return "never: it must not run twice";
  if (limits?.max_restarts === undefined) return "–";
  return `${limits.max_restarts} at most${limits.restartable ? "; other jobs may take its GPUs" : ""}`;
}

function range(training: Spec["training"]): string {
  const batch = training?.batch;
  if (!batch) return "the script's";
  const [min, max] = [sequences(batch.min), sequences(batch.max)];
  return `${min === max ? min : `${min} to ${max}`}${batch.policy ? `, by ${batch.policy}` : ""}`;
}

function nodesWanted(job: JobDetail): string {
  const labels = Object.entries(job.node_labels).map(([name, value]) => `${name}=${value}`);
  const parts = [
    job.topology === "require_rack" ? "all in one rack" : "in one rack if that can be",
    job.included_nodes.length > 0 ? `only ${job.included_nodes.join(", ")}` : "",
    job.excluded_nodes.length > 0 ? `not ${job.excluded_nodes.join(", ")}` : "",
    labels.length > 0 ? `with ${labels.join(", ")}` : "",
  ];
  return parts.filter(Boolean).join("; ");
}

function movesWanted(elastic: Spec["elastic"]): string {
  if (!elastic) return "–";
  const { min_runtime: runtime, max_resizes_per_hour: hourly, max_overhead_pct: overhead } = elastic;
  return [
    runtime === undefined ? "" : `not before ${runtime}`,
    hourly === undefined ? "" : `${hourly} an hour at most`,
    overhead === undefined ? "" : `for ${Math.round(overhead)} % of its time at most`,
  ]
    .filter(Boolean)
    .join(", ");
}

/** Jobs that come before and after it. */
function Around({ job }: { job: JobDetail }) {
  if (job.after.length === 0 && job.dependents.length === 0) return null;
  return (
    <Box title="Before and after it" id="job-around">
      <ul className="job-reasons">
        {job.after.map((one, index) => (
          <li key={one.job_id ?? one.array_id ?? index}>
            after {one.job_id ? <JobLink id={one.job_id} name={one.name ?? null} /> : (one.name ?? "a job that you may not see")} ({one.on}): {one.standing}
            {one.state && (
              <>
                {" "}
                <State state={one.state} />
              </>
            )}
          </li>
        ))}
        {job.dependents.map((one) => (
          <li key={one.job_id}>
            before <JobLink id={one.job_id} name={one.name} /> ({one.on}): {one.standing} <State state={one.state} />
          </li>
        ))}
      </ul>
    </Box>
  );
}

function Changes({ job, at }: TabProps) {
  const events = useJobEvents(job, CHANGES, at);
  const items = events.data?.pages.flatMap((page) => page.items);
  return (
    <Box title="Changed since it was submitted" id="job-changes" note={items && `${count(items.length)}${events.hasNextPage ? " and more" : ""}, the newest first`}>
      {events.error && <Failed error={events.error} asked={events} />}
      {items?.length === 0 && <Empty>Nothing: what is asked for is what was submitted, with defaults filled in.</Empty>}
      <ul className="job-reasons">
        {items?.map((event) => (
          <li key={event.seq}>
            <When at={event.at} /> {event.message}{" "}
            <Link to="/events" search={{ event: String(event.seq) }} className="nowrap">
              event {event.seq}
            </Link>
          </li>
        ))}
      </ul>
    </Box>
  );
}

function Specification({ job }: { job: JobDetail }) {
  const text = JSON.stringify(job.spec, null, 2);
  const [copied, setCopied] = useState(false);
  return (
    <Box
      title="Specification"
      id="job-spec"
      note="as it stands, defaults filled in"
      tools={
        <>
          <button
            className="link"
            onClick={() => void copyText(text).then(setCopied)}
          >
            {copied ? "copied" : "copy"}
          </button>
          <CopyAs command={`headway job get ${job.id} -o json`} path={`/api/v1/jobs/${job.id}`} />
        </>
      }
    >
      <pre className="job-spec" role="region" tabIndex={0} aria-label="Specification as JSON">
        {text}
      </pre>
      <p className="muted">It can be submitted again as it is. Values of the environment are shown to its owner, admins of the project and operators alone.</p>
    </Box>
  );
}
