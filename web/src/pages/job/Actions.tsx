// What can be done to a job in its state. Each is asked as a dry run first: what would come of it stands in the dialog above its button.

import { useDebouncedValue } from "@mantine/hooks";
import { type ReactNode, useCallback, useEffect, useId, useRef, useState } from "react";
import { api, unwrap } from "../../api/client";
import { Act, type Doing } from "../../parts/Act";
import { type JobDetail, hasEnded } from "./asks";
import { type Answer, Foreseen } from "./Foreseen";
import { gpusOf, sentence } from "./words";

/** Those that take nothing but a reason. */
const PATHS = {
  hold: "/api/v1/jobs/{id}/hold",
  release: "/api/v1/jobs/{id}/release",
  pin: "/api/v1/jobs/{id}/pin",
  unpin: "/api/v1/jobs/{id}/unpin",
  checkpoint: "/api/v1/jobs/{id}/checkpoint",
  requeue: "/api/v1/jobs/{id}/requeue",
  cancel: "/api/v1/jobs/{id}/cancel",
} as const;
type Plain = keyof typeof PATHS;

/** A dry run has no key: it may be asked as often as one likes. */
function params(id: string, { dryRun, key }: Doing) {
  return { path: { id }, query: { dry_run: dryRun }, header: dryRun ? {} : { "Idempotency-Key": key } };
}

const TYPING_MS = 400;

export function Actions({ job }: { job: JobDetail }) {
  const { state } = job;
  const ended = hasEnded(state);
  const runs = state === "running" || state === "starting";
  const gpus = gpusOf(job.gpus);
  const saved = job.checkpoint ? `from step ${job.checkpoint.step}` : "from the beginning: it has no checkpoint";
  return (
    <div className="row job-actions" role="group" aria-label="What can be done to this job" data-testid="job-actions">
      {!ended && state !== "held" && (
        <Simple job={job} verb="hold" label="Hold" title={`Hold ${job.name}?`}>
          {runs && `It saves, stops and gives up its ${gpus}. `}It does not run before somebody releases it.
        </Simple>
      )}
      {/* One that stops may do so to be held: whether it can be released the dry run says. */}
      {(state === "held" || state === "stopping") && (
        <Simple job={job} verb="release" label="Release" title={`Release ${job.name}?`}>
          It waits for GPUs again, and goes on {saved}.
        </Simple>
      )}
      {!ended &&
        (job.pin ? (
          <Simple job={job} verb="unpin" label="Unpin" title={`Let plans move ${job.name} again?`}>
            Plans may move it from the next round on.
          </Simple>
        ) : (
          <Simple job={job} verb="pin" label="Pin" title={`Keep ${job.name} where it is?`}>
            Plans leave it on {job.gpus > 0 ? `its ${gpus}` : "the GPUs that it will have next"} until somebody unpins it, also where others would gain more.
            It still leaves nodes that drain or break.
          </Simple>
        ))}
      {!ended && <Resize job={job} />}
      {state === "running" && (
        <Simple job={job} verb="checkpoint" label="Checkpoint now" title={`Have ${job.name} save now?`}>
          It saves and goes on, on the same GPUs.
        </Simple>
      )}
      {(runs || state === "failed" || state === "cancelled") && (
        <Simple job={job} verb="requeue" label="Requeue" title={`Put ${job.name} back into the queue?`}>
          {runs ? `It saves, gives up its ${gpus} and waits for its next turn.` : `It waits for GPUs again and goes on ${saved}; its attempts are counted anew.`}
        </Simple>
      )}
      {!ended && (
        <Simple job={job} verb="cancel" label="Cancel job" title={`Stop ${job.name} for good?`} danger typed={job.name}>
          {runs ? `It saves, stops and gives up its ${gpus}.` : "It leaves the queue."} It does not run again unless somebody requeues it.
        </Simple>
      )}
    </div>
  );
}

interface SimpleProps {
  job: JobDetail;
  verb: Plain;
  label: string;
  title: string;
  danger?: boolean;
  typed?: string;
  /** What comes of it for the job itself. */
  children: ReactNode;
}

function Simple({ job, verb, label, title, danger = false, typed, children }: SimpleProps) {
  const { id } = job;
  const request = useCallback(
    async (doing: Doing) => {
      const body = doing.reason ? { reason: doing.reason } : {};
      return (await unwrap(api.POST(PATHS[verb], { params: params(id, doing), body }))) as Answer;
    },
    [id, verb],
  );
  return (
    <Act
      label={label}
      title={title}
      role="user"
      danger={danger}
      request={request}
      effect={(answer) => <Foreseen of={answer} />}
      {...(typed === undefined ? {} : { typed })}
    >
      <p>{children}</p>
    </Act>
  );
}

export function Resize({ job, label = "Resize" }: { job: JobDetail; label?: string }) {
  const { id } = job;
  const [least, setLeast] = useState(String(job.gpus_min));
  const [most, setMost] = useState(String(job.gpus_max));
  // What is asked for in earnest is what stands in the fields, however fast somebody was.
  const typed = useRef({ least, most });
  useEffect(() => {
    typed.current = { least, most };
  }, [least, most]);
  const [asked] = useDebouncedValue(`${least} ${most}`, TYPING_MS);
  const [min, max] = [useId(), useId()];
  const request = useCallback(
    async (doing: Doing) => {
      const [low = "", high = ""] = doing.dryRun ? asked.split(" ") : [typed.current.least, typed.current.most];
      const body = { min: Number(low), max: Number(high), ...(doing.reason ? { reason: doing.reason } : {}) };
      return (await unwrap(api.POST("/api/v1/jobs/{id}/resize", { params: params(id, doing), body }))) as Answer;
    },
    [id, asked],
  );
  return (
    <Act
      label={label}
      title={`Have ${job.name} run on another number of GPUs?`}
      role="user"
      request={request}
      disabled={job.pin ? "it is pinned: unpin it first" : undefined}
      effect={(answer) => (
        <>
          <p>
            It is to have {answer.gpus_min === answer.gpus_max ? gpusOf(answer.gpus_min) : `${answer.gpus_min} to ${gpusOf(answer.gpus_max)}`}, as soon as a round finds a place;
            that it was moved a short while ago does not keep it.
          </p>
          <Foreseen of={answer} />
        </>
      )}
    >
      <p className="row">
        <label htmlFor={min}>GPUs: at least</label>
        <input id={min} className="field job-size" type="number" min={1} value={least} onChange={(event) => setLeast(event.target.value)} />
        <label htmlFor={max}>at most</label>
        <input id={max} className="field job-size" type="number" min={1} value={most} onChange={(event) => setMost(event.target.value)} />
        {job.gpu_sizes.length > 0 && <span className="muted">It runs on {sentence(job.gpu_sizes.join(", "))}</span>}
      </p>
    </Act>
  );
}
