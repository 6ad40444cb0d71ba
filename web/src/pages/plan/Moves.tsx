// What a plan gives otherwise than what was, job by job; which moves are left out, and what that costs. Who keeps what he has is folded.

import { Link } from "@tanstack/react-router";
import { type ReactNode, createContext, useContext, useMemo, useState } from "react";
import { ApiError, type Plan } from "../../api/client";
import { count, signedPercent } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, PlanLink } from "../../parts/Name";
import { Box, Failed } from "../../parts/Panel";
import { accountOf } from "./account";
import type { Assignment } from "./asks";
import { type Exclusions, mustStay } from "./exclusions";
import { MoveDetail } from "./MoveDetail";
import { type Line, columnsFor, linesOf } from "./moveColumns";
import { Progress } from "./Progress";
import { layout, objective, sentence, signedHours } from "./words";

interface Props {
  plan: Plan;
  /** Who had which GPUs before it; undefined: not known, or not yet. */
  before: ReadonlyMap<string, Assignment> | undefined;
  exclusions: Exclusions;
  /** Whether moves can be left out, by this person and of this plan. */
  editable: boolean;
  chosen: string | undefined;
  onChoose: (job: string | undefined) => void;
  /** Instead of a table without rows. */
  nothing: ReactNode;
}

/** What ticks are made from, beside their rows: columns that changed with it would build all cells anew, and take the focus from them. */
const Ticking = createContext<{ plan: Plan; exclusions: Exclusions } | undefined>(undefined);

const TICK: Column<Line> = {
  id: "in",
  header: "In",
  width: "40px",
  hint: "untick a move to have its job stay as it is; the round is then solved again",
  cell: (line) => <Tick line={line} />,
};

export function Moves({ plan, before, exclusions, editable, chosen, onChoose, nothing }: Props) {
  const { out } = exclusions;
  const lines = useMemo(() => linesOf(plan, out, before), [plan, out, before]);
  const carriedOut = plan.moves.some((move) => move.outcome);
  const columns = useMemo(() => [...(editable ? [TICK] : []), ...columnsFor(carriedOut)], [editable, carriedOut]);
  const move = plan.moves.find((one) => one.job_id === chosen);
  return (
    <Box title="Moves" id="plan-moves" className="span-12 plan-moves" note={plan.moves.length > 0 ? `all ${count(plan.moves.length)}` : undefined}>
      {lines.length === 0 ? (
        nothing
      ) : (
        <>
          <Ticking value={{ plan, exclusions }}>
            <DataTable
              label="Moves of the plan"
              rows={lines}
              columns={columns}
              keyOf={(line) => line.id}
              onOpen={(line) => line.move && onChoose(line.id === chosen ? undefined : line.id)}
              selected={chosen}
              over={(line) => line.out}
              testId="plan-diff"
            />
          </Ticking>
          <p className="plan-sum" data-testid="plan-sentence">
            <strong>{sentence(plan.moves)}</strong> <span className="muted">Enter or a press on a row tells why.</span>
          </p>
        </>
      )}
      <Progress plan={plan} />
      <LeftOut plan={plan} exclusions={exclusions} editable={editable} />
      {move && <MoveDetail plan={plan} move={move} before={before?.get(move.job_id)} onClose={() => onChoose(undefined)} />}
      <Unchanged plan={plan} />
    </Box>
  );
}

function Tick({ line }: { line: Line }) {
  const ticking = useContext(Ticking);
  if (!ticking) return null;
  const { plan, exclusions } = ticking;
  const fixed = line.move && mustStay(line.move, plan);
  return (
    <label className="plan-tick" title={fixed ?? (line.out ? "let it be moved again" : "leave this move out")}>
      <input
        type="checkbox"
        checked={!line.out}
        disabled={fixed !== undefined}
        // Disabled it would lose the focus.
        aria-disabled={exclusions.solving || undefined}
        onChange={() => exclusions.toggle(line.id)}
        aria-label={`Move ${line.name}`}
      />
    </label>
  );
}

/** What is left out of the plan, or is to be, and what that costs. */
function LeftOut({ plan, exclusions, editable }: { plan: Plan; exclusions: Exclusions; editable: boolean }) {
  const { out, pending, solving, error, compared, solve } = exclusions;
  const many = out.size === 1 ? "1 move" : `${count(out.size)} moves`;
  const busy = editable && (solving || error !== null);
  if (out.size === 0 && !pending && !busy) return null;
  return (
    <div className="plan-left-out" aria-live="polite" data-testid="plan-excluded">
      {editable && error && <Refused error={error} />}
      {editable && solving ? (
        <span className="muted">Solving again {out.size === 0 ? "with all moves" : `without ${many}`} …</span>
      ) : pending ? (
        <>
          <span className="warn">▲ The plan above was made {out.size === 0 ? "without some moves" : `with the ${many} that you left out`}.</span>{" "}
          {editable && (
            <button className="button" onClick={solve}>
              Solve again {out.size === 0 ? "with all moves" : `without ${many}`}
            </button>
          )}
        </>
      ) : compared ? (
        <Cost plan={plan} compared={compared} many={many} />
      ) : (
        <span>Made without {many}: their jobs stay as they are.</span>
      )}
    </div>
  );
}

function Cost({ plan, compared, many }: { plan: Plan; compared: NonNullable<Exclusions["compared"]>; many: string }) {
  const [now, whole] = [accountOf(plan.moves), accountOf(compared.with.moves)];
  const share = compared.with.objective > 0 ? plan.objective / compared.with.objective - 1 : undefined;
  return (
    <span>
      <strong>Without {many}:</strong> {signedHours(now.firstDayHours)} in the first day instead of {signedHours(whole.firstDayHours)}; objective{" "}
      {objective(plan.objective)} instead of {objective(compared.with.objective)}
      {share !== undefined && ` (${signedPercent(share)})`}; {count(plan.moves.length)} {plan.moves.length === 1 ? "move" : "moves"} instead of{" "}
      {count(compared.with.moves.length)}. <span className="muted">Answered in {compared.seconds.toFixed(1)} s; the proposal with all of them is</span>{" "}
      <PlanLink id={compared.with.id} />
    </span>
  );
}

/** With what to do about it, where the server says so. */
export function Refused({ error }: { error: Error }) {
  const hint = error instanceof ApiError ? error.problem.hint : undefined;
  return (
    <>
      <Failed error={error} />
      {hint && <p className="muted">{hint}</p>}
    </>
  );
}

const STAYS: Column<Assignment>[] = [
  { id: "job", header: "Job", cell: (one) => <JobLink id={one.job_id} name={one.job_name} /> },
  { id: "gpus", header: "GPUs", number: true, width: "70px", cell: (one) => count(one.gpus) },
  { id: "layout", header: "Layout", width: "220px", from: "tablet", cell: (one) => layout(one.configuration) },
];

function Unchanged({ plan }: { plan: Plan }) {
  const [open, setOpen] = useState(false);
  const waits = plan.jobs_left_waiting;
  const stays = useMemo(() => {
    const moved = new Set(plan.moves.map((move) => move.job_id));
    return plan.assignments.filter((one) => !moved.has(one.job_id));
  }, [plan]);
  const gpus = stays.reduce((sum, one) => sum + one.gpus, 0);
  return (
    <div className="plan-same">
      {stays.length > 0 && (
        <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)} data-testid="plan-unchanged">
          <summary>
            … {count(stays.length)} unchanged, on {count(gpus)} GPUs
          </summary>
          {open && <DataTable label="Jobs that keep what they have" rows={stays} columns={STAYS} keyOf={(one) => one.job_id} height={280} />}
        </details>
      )}
      {waits > 0 && (
        <p>
          <Link to="/queue">{waits === 1 ? "1 job goes" : `${count(waits)} jobs go`} on waiting</Link>
          <span className="muted">: nothing for them in this plan</span>
        </p>
      )}
    </div>
  );
}
