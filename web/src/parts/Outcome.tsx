// What would come of something that is not so, as the planner found by solving its round once more: the sentence, and whom it would take GPUs from
// or give some.

import { useState } from "react";
import type { components } from "../api/schema";
import { JobLink, PlanLink } from "./Name";
import "./outcome.css";

type Counterfactual = components["schemas"]["Counterfactual"];
type Foreseen = components["schemas"]["Foreseen"];
type Shift = components["schemas"]["Shift"];

/** Of the others so many are named at first. */
const NAMED = 5;

export function Outcome({ of }: { of: Counterfactual }) {
  return (
    <div className="outcome">
      <p>
        <span className={of.possible ? "good" : "muted"}>
          <span aria-hidden>{of.possible ? "✓" : "✗"}</span>
          <span className="hidden-text">{of.possible ? "possible:" : "not possible:"}</span>
        </span>{" "}
        {of.answer}
      </p>
      <Shifts label="fewer GPUs" shifts={of.losers} />
      <Shifts label="more GPUs" shifts={of.winners} />
    </div>
  );
}

function Shifts({ label, shifts }: { label: string; shifts: Shift[] }) {
  const [all, setAll] = useState(false);
  if (shifts.length === 0) return null;
  return (
    <ul className="outcome-shifts" aria-label={label}>
      <li className="muted">{label}:</li>
      {(all ? shifts : shifts.slice(0, NAMED)).map((shift) => (
        <li key={shift.job_id}>
          <JobLink id={shift.job_id} name={shift.job_name} />
          <span className="nowrap">
            {shift.from_gpus} → {shift.to_gpus}
          </span>
        </li>
      ))}
      {!all && shifts.length > NAMED && (
        <li>
          <button className="link" onClick={() => setAll(true)}>
            and {shifts.length - NAMED} more
          </button>
        </li>
      )}
    </ul>
  );
}

/** Of a request, from its dry run. */
export function ForeseenOutcome({ of }: { of: Foreseen | null | undefined }) {
  if (!of) return null;
  if (!of.outcome) return <p className="muted">What would come of it is not known{of.left_out ? `: ${of.left_out}` : ""}.</p>;
  return (
    <>
      <Outcome of={of.outcome} />
      {of.plan_id && (
        <p className="muted">
          compared with plan <PlanLink id={of.plan_id} />
        </p>
      )}
    </>
  );
}
