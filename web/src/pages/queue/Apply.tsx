// "Apply as edit": the change of the job that a counterfactual stands for, with what would come of it now, before it is done.

import { useCallback } from "react";
import type { Job } from "../../api/client";
import { Act, type Doing } from "../../parts/Act";
import { CopyAs } from "../../parts/CopyAs";
import { ForeseenOutcome } from "../../parts/Outcome";
import { ADMIN_PRIORITY, type Edit, type Supposed, asCommand, edit, inWords } from "./edits";

export function Apply({ job, change }: { job: Job; change: Edit }) {
  const { id, gpus_min, gpus_max, gpu_sizes } = job;
  const { gpusMin, priority } = change;
  const request = useCallback(
    (doing: Doing) => edit({ id, gpus_min, gpus_max, gpu_sizes }, { gpusMin, priority }, doing),
    [id, gpus_min, gpus_max, gpu_sizes, gpusMin, priority],
  );
  return (
    <Act
      label="Apply as edit"
      title={`Change ${job.name} to ${inWords(change)}`}
      role={priority !== undefined && priority >= ADMIN_PRIORITY ? "admin" : "user"}
      request={request}
      effect={(after: Supposed) => (
        <div className="stack">
          <p>
            {gpusMin !== undefined
              ? `GPUs: ${gpus_min}–${gpus_max} now, ${after.gpus_min}–${after.gpus_max} then.`
              : `Priority: ${job.priority} now, ${after.priority} then.`}
          </p>
          <ForeseenOutcome of={after.foreseen} />
        </div>
      )}
    >
      <CopyAs command={asCommand(id, change)} />
    </Act>
  );
}
