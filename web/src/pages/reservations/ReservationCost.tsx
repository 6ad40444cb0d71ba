// The cost of a reservation: its GPU-hours, and the jobs that have to leave its nodes.

import type { components } from "../../api/schema";
import { serverNow } from "../../lib/clock";
import { count, gpuHours } from "../../lib/format";
import { JobLink } from "../../parts/Name";
import { Until } from "../../parts/Time";

type Cost = components["schemas"]["ReservationCost"];
type DepartingJob = components["schemas"]["DepartingJob"];

/** Jobs that are named one by one. */
const NAMED = 8;

export function ReservationCost({ cost: { gpus, gpu_hours: hours, jobs } }: { cost: Cost }) {
  return (
    <>
      <p>
        It takes {count(gpus)} {gpus === 1 ? "GPU" : "GPUs"} from other jobs: {gpuHours(hours)}.{" "}
        {jobs.length === 0 ? "No job has to leave." : `${count(jobs.length)} ${jobs.length === 1 ? "job of others runs" : "jobs of others run"} on its nodes now:`}
      </p>
      {jobs.length > 0 && (
        <ul className="job-lines" aria-label="Jobs of others on the nodes">
          {jobs.slice(0, NAMED).map((job) => (
            <li key={job.job_id}>
              <JobLink id={job.job_id} name={job.job_name} />
              <Ending of={job} />
            </li>
          ))}
          {jobs.length > NAMED && <li className="muted">and {count(jobs.length - NAMED)} more</li>}
        </ul>
      )}
    </>
  );
}

function Ending({ of: { ending, leaves_at: at } }: { of: DepartingJob }) {
  switch (ending) {
    case "limit":
      return <span className="muted">its time limit ends it before the reservation begins</span>;
    case "saves":
      return (
        <span>
          saves and leaves <LeavesAt at={at} />
        </span>
      );
    case "unsaved":
      return (
        <span className="bad">
          is stopped <LeavesAt at={at} /> and does not save its work
        </span>
      );
    case "stays":
      return <span className="warn">stays until it ends or is cancelled: it must not run twice</span>;
    default:
      return (
        <span>
          leaves <LeavesAt at={at} />
        </span>
      );
  }
}

/** "at once", or "in 5h 50m". */
function LeavesAt({ at }: { at: string }) {
  const late = Date.parse(at) <= serverNow();
  return late ? <>at once</> : <Until at={at} />;
}
