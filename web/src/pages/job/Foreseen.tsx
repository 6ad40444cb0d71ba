// What the planner says would come of an action, or why it does not say.

import type { Job } from "../../api/client";
import type { components } from "../../api/schema";
import { count, duration, signedPercent } from "../../lib/format";
import { ForeseenOutcome } from "../../parts/Outcome";

type Schemas = components["schemas"];

/** A dry run's reply has what is foreseen beside the job as it would be. */
export type Answer = Job & { foreseen?: Schemas["Foreseen"] | null };

export function Foreseen({ of }: { of: Answer }) {
  const outcome = of.foreseen?.outcome;
  return (
    <div className="stack" data-testid="foreseen">
      <ForeseenOutcome of={of.foreseen} />
      {outcome && (
        <p className="muted">
          Goodput of all jobs {signedPercent(outcome.goodput_change_pct / 100)}
          {outcome.moves > 0 && `; ${count(outcome.moves)} more would move, with ${duration(outcome.downtime_seconds)} of standstill in all`}.
        </p>
      )}
    </div>
  );
}
