// What would come of an action on a node, in words, from the answer to its dry run.

import type { ReactNode } from "react";
import type { components } from "../../api/schema";
import { count, duration, gpuHours, signedPercent } from "../../lib/format";
import { JobLink, Middle } from "../../parts/Name";
import { ForeseenOutcome } from "../../parts/Outcome";
import { Until } from "../../parts/Time";
import "./node.css";

type Schemas = components["schemas"];
type DrainedJob = Schemas["DrainedJob"];

/** Jobs that are named one by one; of more, how many more. */
const NAMED = 8;

interface Props {
  foreseen: Schemas["Foreseen"] | null | undefined;
  /** What comes of it whatever the planner says; a sentence. */
  children: ReactNode;
}

export function Foreseen({ foreseen, children }: Props) {
  const change = foreseen?.outcome?.goodput_change_pct;
  return (
    <div className="stack" data-testid="node-foreseen">
      <p>{children}</p>
      {foreseen?.drain && <Leaving drain={foreseen.drain} />}
      {change !== undefined && (
        <p>
          Goodput of all jobs: <strong className={change < 0 ? "bad" : ""}>{signedPercent(change / 100)}</strong>
        </p>
      )}
      <ForeseenOutcome of={foreseen} />
    </div>
  );
}

function Leaving({ drain }: { drain: Schemas["DrainEffect"] }) {
  const { jobs, gpus, gpu_hours: hours, free_at: free } = drain;
  if (jobs.length === 0) return <p>Nothing runs here: the node is empty at once.</p>;
  return (
    <>
      <p>
        {count(jobs.length)} {jobs.length === 1 ? "job holds" : "jobs hold"} {count(gpus)} {gpus === 1 ? "GPU" : "GPUs"} here. Standing still costs{" "}
        {gpuHours(hours)} in all.{" "}
        {free ? (
          <>
            The node would be empty <Until at={free} /> at the latest.
          </>
        ) : (
          "When the node would be empty is not known."
        )}
      </p>
      <ul className="job-lines" aria-label="Jobs on the node">
        {jobs.slice(0, NAMED).map((job) => (
          <li key={job.job_id}>
            <JobLink id={job.job_id} name={job.job_name} />
            <span className={TONES[job.effect] ?? ""}>{whatBecomesOf(job)}</span>
          </li>
        ))}
        {jobs.length > NAMED && <li className="muted">and {count(jobs.length - NAMED)} more</li>}
      </ul>
    </>
  );
}

const TONES: Record<string, string> = { shrinks: "warn", stops: "bad", stays: "muted", unknown: "muted" };

/** "moves to n3 and n4, stands still 41 s (0.09 GPU-h)". */
function whatBecomesOf(job: DrainedJob): string {
  const to = job.to_nodes.length > 0 ? ` to ${places(job.to_nodes)}` : "";
  const sizes = `${job.from_gpus} → ${job.to_gpus} GPUs`;
  const still = job.standstill_seconds == null ? "" : `, stands still ${duration(job.standstill_seconds)} (${gpuHours(job.gpu_hours)})`;
  switch (job.effect) {
    case "moves":
      return `moves${to}${still}`;
    case "shrinks":
    case "grows":
      return `${job.effect}, ${sizes}${to ? `, and goes${to}` : ""}${still}`;
    case "stops":
      return `stops and waits for room${still}`;
    case "stays":
      return "stays until the deadline: it has nowhere else to go";
    default:
      return "leaves; where to is not known, since the newest round did not know it";
  }
}

function places(nodes: string[]): string {
  if (nodes.length > 3) return `${nodes.slice(0, 2).join(", ")} and ${nodes.length - 2} more nodes`;
  return nodes.length > 1 ? `${nodes.slice(0, -1).join(", ")} and ${nodes.at(-1)}` : nodes.join("");
}

/** What a deletion leaves behind. */
export function Deleted({ of }: { of: Schemas["DeletedNode"] }) {
  const parts: [string, string[]][] = [
    ["Reservations that are cancelled, since it was their last node", of.reservations_cancelled],
    ["Reservations that go on without it", of.reservations],
    ["Rows of the policy that name it still", of.policy_rows],
  ];
  return (
    <>
      {parts
        .filter(([, names]) => names.length > 0)
        .map(([words, names]) => (
          <div key={words}>
            {words}:{" "}
            {names.map((name) => (
              <Middle key={name} text={name} />
            ))}
          </div>
        ))}
    </>
  );
}
