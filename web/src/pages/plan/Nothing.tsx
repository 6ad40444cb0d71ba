// Where there is no plan, or one that moves nobody: what the last round found, and what to do.

import { Link } from "@tanstack/react-router";
import type { Overview, Plan } from "../../api/client";
import { useNow } from "../../lib/clock";
import { count, duration } from "../../lib/format";
import { planningStands } from "../../lib/incident";
import { Empty } from "../../parts/Panel";
import { Propose } from "./Actions";
import { gap } from "./Head";
import { BestRejected } from "./NotDone";

/** How near to the best a plan is, by the solver's own bound. */
function within(plan: Plan): string {
  if (plan.gap == null) return "no move was found that serves the policy's order better";
  return plan.gap <= 0 ? "what jobs have is proven to be the best" : `what jobs have is within ${gap(plan.gap)} of the best conceivable`;
}

/** The plan in force, where no proposal waits: whether there is anything to wait for. */
export function NothingWaits({ plan, overview }: { plan: Plan; overview: Overview }) {
  const now = useNow();
  const { newest_plan_id: newest, newest_plan_at: at } = overview.planner ?? {};
  const since = at && newest !== plan.id ? `the newest round, ${duration((now - Date.parse(at)) / 1_000)} ago, put nothing in its place` : "no round has come since";
  return (
    <p className="plan-which" data-testid="plan-nothing-waits">
      No proposal waits: by this plan {within(plan)}, and {since}. <BestRejected plan={plan} />
    </p>
  );
}

export function NoMoves({ plan, overview }: { plan: Plan; overview: Overview | undefined }) {
  return (
    <div data-testid="plan-nothing">
      <Empty>
        Nobody moves: {within(plan)}, of {count(plan.candidates)} candidates{overview && <Checked overview={overview} />}. <BestRejected plan={plan} />
      </Empty>
    </div>
  );
}

/** How fresh that is. */
function Checked({ overview }: { overview: Overview }) {
  const now = useNow();
  const at = overview.planner?.newest_plan_at;
  if (!at) return null;
  return <> (the newest round was {duration((now - Date.parse(at)) / 1_000)} ago)</>;
}

export function NoPlan({ overview, past }: { overview: Overview | undefined; past: boolean }) {
  const now = useNow();
  if (past) return <Empty>At that moment no plan was in force and none waited.</Empty>;
  if (!overview) return null;
  const stands = planningStands(overview, now);
  const jobs = Object.values(overview.jobs_by_state).reduce((sum, many) => sum + many, 0);
  return (
    <div data-testid="plan-none">
      <Empty>
        No plan has been made yet.{" "}
        {stands ? (
          <span className="bad">▲ {stands.headline}</span>
        ) : overview.policy_mode === "paused" ? (
          <>
            Planning is paused: <Link to="/settings" search={{ tab: "policy" }}>the policy</Link> resumes it.
          </>
        ) : jobs === 0 ? (
          <>
            The first comes with the first job: <code>headway submit job.yaml</code>.
          </>
        ) : overview.nodes_total === 0 ? (
          <>
            No node has joined that it could plan with: <Link to="/settings" search={{ tab: "nodes" }}>how nodes join</Link>.
          </>
        ) : (
          "The first round is under way."
        )}
      </Empty>
      {jobs > 0 && <Propose waits={false} label="Have a round run now …" />}
    </div>
  );
}
