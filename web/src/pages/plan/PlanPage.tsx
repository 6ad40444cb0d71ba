// The plan that waits for approval, the one in force, or a named one: what it would do or did, what that brings and costs, what is not done and
// why, and what came of the plans before it.

import { useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import type { ApiError, Overview, Plan } from "../../api/client";
import { useOverview } from "../../api/queries";
import { useCan } from "../../api/session";
import { Failed, Loading } from "../../parts/Panel";
import { Actions } from "./Actions";
import { type Assignment, type Shown, useShown, useWholePlan } from "./asks";
import { useExclusions } from "./exclusions";
import { Facts, Title, Why } from "./Head";
import { History } from "./History";
import { Ledger } from "./Ledger";
import { MapPanel } from "./MapPanel";
import { Moves } from "./Moves";
import { Exceptions, NotDone } from "./NotDone";
import { NoMoves, NoPlan, NothingWaits } from "./Nothing";
import { Scarce } from "./Scarce";
import { Since } from "./Since";
import "./plan.css";

export default function PlanPage() {
  const { plan: named, exclude, at } = useSearch({ from: "/plan" });
  const overview = useOverview();
  const shown = useShown(named, at);
  const whole = useWholePlan(shown.id, shown.stands);
  const plan = useMemo(() => whole.data && asItWas(whole.data, shown.then), [whole.data, shown.then]);
  const error = shown.error ?? whole.error;
  return (
    <div data-testid="page-plan" className="plan">
      <header className="page-head">
        <Title plan={plan} />
      </header>
      {error && (
        <div className="plan-failed">
          <Failed error={error} asked={shown.error ? overview : whole} />
          {named && (
            <Link to="/plan" search={{ at }}>
              What waits or is in force
            </Link>
          )}
        </div>
      )}
      {plan ? (
        <Whole plan={plan} overview={overview.data} shown={shown} exclude={exclude} past={at !== undefined} named={named !== undefined} />
      ) : shown.asking || (shown.id !== undefined && !error) ? (
        <Loading height={480} />
      ) : (
        !error && <NoPlan overview={overview.data} past={at !== undefined} />
      )}
      <div className="grid plan-history">
        <History shown={shown.id} past={at !== undefined} />
      </div>
    </div>
  );
}

/** In its state of a past moment. */
function asItWas(plan: Plan, then: Shown["then"]): Plan {
  if (!then) return plan;
  const { state, state_reason, decided_at, decided_by } = then;
  return { ...plan, state, state_reason, decided_at, decided_by };
}

/** Before the first plan nobody had anything. */
const NOBODY: readonly Assignment[] = [];

interface Props {
  plan: Plan;
  overview: Overview | undefined;
  shown: Shown;
  exclude: string | undefined;
  past: boolean;
  named: boolean;
}

function Whole({ plan, overview, shown, exclude, past, named }: Props) {
  const queries = useQueryClient();
  const may = useCan("operator");
  const editable = !past && may && plan.state === "proposed";
  const exclusions = useExclusions(plan, editable ? exclude : undefined);
  const [chosen, setChosen] = useState<string>();
  const [conflict, setConflict] = useState<{ plan: string; error: ApiError }>();
  const onConflict = useCallback(
    (of: string, error: ApiError) => {
      setConflict({ plan: of, error });
      for (const key of ["whole-plan", "overview"]) void queries.invalidateQueries({ queryKey: [key], type: "active" });
    },
    [queries],
  );
  const parent = useWholePlan(plan.parent_id, "then");
  const before = plan.parent_id ? parent.data?.assignments : NOBODY;
  const asking = plan.parent_id != null && parent.data === undefined && !parent.error;
  const held = useMemo(() => before && new Map(before.map((one) => [one.job_id, one])), [before]);
  const refused = conflict?.plan === plan.id ? conflict.error : undefined;
  const outOfDate = !past && (plan.state === "stale" || (plan.state === "proposed" && refused !== undefined));
  return (
    <>
      <Why plan={plan} />
      <Facts plan={plan} overview={overview} past={past} />
      {!past && <Actions plan={plan} pending={exclusions.pending} onConflict={onConflict} />}
      <Which plan={plan} shown={shown} past={past} named={named} overview={overview} />
      {outOfDate && overview && <Since plan={plan} overview={overview} conflict={refused} exclusions={exclusions} may={may} />}
      <div className="grid">
        <Moves
          plan={plan}
          before={held}
          exclusions={exclusions}
          editable={editable}
          chosen={chosen}
          onChoose={setChosen}
          nothing={<NoMoves plan={plan} overview={shown.stands === "in force" ? overview : undefined} />}
        />
        <MapPanel plan={plan} before={before} asking={asking} lit={chosen} />
        <Ledger plan={plan} />
        <NotDone plan={plan} />
        <Scarce plan={plan} />
        <Exceptions plan={plan} />
      </div>
    </>
  );
}

/** Which of the plans this is, and the way to the others. */
function Which({ plan, shown, past, named, overview }: Omit<Props, "exclude">) {
  if (past) {
    return (
      <p className="muted plan-which">
        {shown.then ? "As it stood at that moment; what came of its moves since is told as well." : "At that moment it was neither in force nor waiting: its state is that of now."}
      </p>
    );
  }
  const waits = overview?.plans_waiting.find((id) => id !== plan.id);
  if (named && (shown.stands === "past" || waits)) {
    return (
      <p className="plan-which">
        <Link to="/plan">{waits ? "Go to the proposal that waits for approval" : "Go to the plan in force"}</Link>
      </p>
    );
  }
  return (
    <>
      {shown.stands === "in force" && overview && plan.moves.length > 0 && <NothingWaits plan={plan} overview={overview} />}
      {!named && (
        <p className="muted plan-which">
          {shown.stands === "waits" ? "This is the proposal that waits" : "This is the plan in force"}; the page follows to the next.{" "}
          <Link to="/plan" search={{ plan: plan.id }}>
            Stay with this one
          </Link>
        </p>
      )}
    </>
  );
}
