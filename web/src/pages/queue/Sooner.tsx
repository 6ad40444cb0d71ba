// What would start a job sooner: the planner's answers to what people would ask, each with where it is decided.

import { Link } from "@tanstack/react-router";
import type { Explanation, Job } from "../../api/client";
import { NodeLink } from "../../parts/Name";
import { Outcome } from "../../parts/Outcome";
import { Apply } from "./Apply";
import { type SupposedChange, leverOf } from "./edits";
import { LeastGpus } from "./LeastGpus";
import type { JobDetail } from "./queries";

export function Sooner({ explanation, job }: { explanation: Explanation; job: JobDetail }) {
  const answers = explanation.counterfactuals ?? [];
  return (
    <section aria-label="What would start it sooner" className="stack" data-testid="sooner">
      <h3>What would start it sooner</h3>
      {explanation.left_out && (
        <p className="muted" role="status">
          {explanation.left_out}. It is asked again by itself.
        </p>
      )}
      {answers.length > 0 && (
        <ul className="queue-sooner">
          {answers.map((one) => (
            <li key={one.question}>
              <div className="row">
                <b className="queue-question">{one.question}</b>
                <span className="space" />
                {one.possible && <Decide changes={one.changes} job={job} />}
              </div>
              <Outcome of={one} />
            </li>
          ))}
        </ul>
      )}
      {answers.length === 0 && !explanation.left_out && <p className="muted">Nothing that the planner tried would start it.</p>}
      <LeastGpus key={job.id} job={job} />
    </section>
  );
}

/** The edit, or who else decides it. */
function Decide({ changes, job }: { changes: readonly SupposedChange[]; job: Job }) {
  const lever = leverOf(changes, job);
  switch (lever.kind) {
    case "edit":
      return <Apply job={job} change={lever.edit} />;
    case "project":
      return (
        <Link to="/settings" search={{ tab: "projects" }} title={`the quota of ${lever.project} is set there`}>
          quotas
        </Link>
      );
    case "policy":
      return (
        <Link to="/settings" search={{ tab: "policy" }} title="rows are part of the policy">
          policy
        </Link>
      );
    case "node":
      return <NodeLink node={lever.id} name={lever.name} />;
    case "none":
      return <span className="muted">{lever.why}</span>;
  }
}
