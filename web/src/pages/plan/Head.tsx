// What a plan is, before what it does: its state, why it was made, what it promises in sum, how good it is known to be, and how planning goes.

import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Overview, Plan } from "../../api/client";
import { useNow } from "../../lib/clock";
import { brief, count, duration, percent, signedPercent } from "../../lib/format";
import { planningStands } from "../../lib/incident";
import { CopyAs } from "../../parts/CopyAs";
import { PlanLink } from "../../parts/Name";
import { Ago, Until } from "../../parts/Time";
import { accountOf } from "./account";
import { change, objective, objectiveShare, progressOf, signedHours, stateOf } from "./words";

const DECIDED: Record<string, string> = { adopted: "adopted", superseded: "replaced", rejected: "rejected", stale: "dropped" };

export function Title({ plan }: { plan: Plan | undefined }) {
  if (!plan) return <h1>Plan</h1>;
  const { glyph, tone, word } = stateOf(plan.state);
  const progress = progressOf(plan);
  return (
    <>
      <h1 title={plan.id}>
        Plan <span className="mono plan-id">{plan.id.slice(-8)}</span>
      </h1>
      <span className={tone} data-testid="plan-state">
        <span aria-hidden>{glyph}</span> {word}
        {progress && `: ${progress}`}
      </span>
      <span className="muted">
        made <Ago at={plan.made_at} />
        {plan.decided_at && (
          <>
            , {DECIDED[plan.state] ?? "decided"} {plan.decided_by && `by ${plan.decided_by} `}
            <Ago at={plan.decided_at} />
          </>
        )}
      </span>
      <span className="space" />
      <CopyAs command={`headway plan show ${plan.id}`} path={`/api/v1/plans/${plan.id}`} />
    </>
  );
}

export function Why({ plan }: { plan: Plan }) {
  return (
    <p className="plan-why">
      <span className="muted">Because</span> {plan.trigger}
      {plan.terms && <Terms of={plan.terms} />}
      {plan.parent_id && (
        <>
          {" "}
          <span className="muted">· made from</span> <PlanLink id={plan.parent_id} />
        </>
      )}
      {plan.state_reason && (
        <>
          {" "}
          <span className="muted">· rejected:</span> {plan.state_reason}
        </>
      )}
    </p>
  );
}

function Terms({ of }: { of: NonNullable<Plan["terms"]> }) {
  const { projects = [], nodes = [], jobs = [] } = of.scope;
  const many = (number: number, one: string) => (number === 1 ? `1 ${one}` : `${count(number)} ${one}s`);
  const words = [
    of.min_gain_pct != null && `a move gains at least ${of.min_gain_pct} %`,
    of.max_moves != null && `at most ${many(of.max_moves, "move")}`,
    projects.length > 0 && `moves in ${projects.join(", ")} only`,
    nodes.length > 0 && `moves on ${many(nodes.length, "node")} only`,
    jobs.length > 0 && `moves of ${many(jobs.length, "job")} only`,
    of.exclude.length > 0 && `without ${many(of.exclude.length, "job")}`,
    of.force.length > 0 && `${many(of.force.length, "job")} forced`,
  ].filter(Boolean);
  return (
    <>
      {words.length > 0 && <span className="muted"> · asked for with: {words.join(", ")}</span>}
      {of.undoes && (
        <>
          {" "}
          <span className="muted">· takes back</span> <PlanLink id={of.undoes} />
        </>
      )}
    </>
  );
}

export function Facts({ plan, overview, past }: { plan: Plan; overview: Overview | undefined; past: boolean }) {
  const account = accountOf(plan.moves);
  const share = objectiveShare(plan);
  return (
    <dl className="plan-facts" data-testid="plan-facts">
      <Fact name="objective" hint="Σ weight × value over all jobs, if all stayed as it was and by this plan">
        {change(plan.objective_before, plan.objective, objective)}
        {share !== undefined && <span className="muted"> {signedPercent(share)}</span>}
      </Fact>
      {(plan.forced || plan.goodput_change_pct != null) && (
        <Fact name="goodput" hint="Expected change of the goodput of running jobs that the plan stops or restarts">
          {plan.goodput_change_pct != null && signedPercent(plan.goodput_change_pct / 100)}
          {plan.forced && <span className="warn"> ▲ forced</span>}
        </Fact>
      )}
      <Fact name="net gain, first day" hint="GPU-hours that jobs do more, less what standing still and starting cost; see the ledger">
        <strong data-testid="plan-net">{plan.moves.length === 0 ? "nothing moves" : signedHours(account.firstDayHours)}</strong>
      </Fact>
      <Fact name="pays back" hint="when what the moves bring has paid for the standstill of those that move">
        {account.paysBackSeconds !== null
          ? `in ${duration(account.paysBackSeconds)}`
          : account.standing === 0
            ? "nobody stands still"
            : "not by goodput alone"}
      </Fact>
      <Fact name="gap" hint="how far the best conceivable plan may be above this one">
        {plan.gap == null ? "none told: jobs are served in order" : plan.gap <= 0 ? "none: proven best" : gap(plan.gap)}
      </Fact>
      <Fact name="solved from" hint={plan.solver?.instead ?? undefined}>
        {count(plan.candidates)} candidates{plan.solver && `, by ${plan.solver.name} ${plan.solver.version}`}
        {plan.solver?.instead && <span className="warn"> ▲ not the solver asked for</span>}
      </Fact>
      {plan.state === "proposed" && plan.valid_until && !past && (
        <Fact name="expires" hint="a proposal that nobody decides on by then is dropped">
          <Until at={plan.valid_until} />
        </Fact>
      )}
      {plan.hash && (
        <Fact name="hash" hint={`An approval names it, so that nothing else is approved: ${plan.hash}`}>
          <span className="mono">{plan.hash.slice(0, 8)}…</span>
        </Fact>
      )}
      {overview && !past && <Rounds overview={overview} />}
    </dl>
  );
}

export function gap(share: number): string {
  return share < 0.01 ? `${(share * 100).toFixed(2)} %` : percent(share);
}

function Fact({ name, hint, children }: { name: string; hint?: string | undefined; children: ReactNode }) {
  return (
    <div title={hint}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Whether plans come at all, and how fast: a plan that is old since planning stands is no good plan. */
function Rounds({ overview }: { overview: Overview }) {
  const now = useNow();
  const { planner, policy_mode: mode } = overview;
  const stands = planningStands(overview, now);
  if (!planner) return null;
  const { round_median_seconds: median, round_p99_seconds: slow, rounds_measured: measured } = planner;
  const times = median != null && slow != null && `${brief(median)} in the median, ${brief(slow)} at p99, of ${count(measured)}`;
  return (
    <Fact
      name="rounds"
      hint={[
        planner.newest_plan_at && `newest plan ${duration((now - Date.parse(planner.newest_plan_at)) / 1_000)} ago`,
        planner.last_given_up && `last given up: ${planner.last_given_up}`,
      ]
        .filter(Boolean)
        .join("; ")}
    >
      <span data-testid="plan-rounds">
        {stands ? (
          <span className="bad">▲ {stands.headline}</span>
        ) : mode === "paused" ? (
          <Link to="/settings" search={{ tab: "policy" }} className="warn">
            ‖ paused
          </Link>
        ) : (
          <span className="good">✓ {mode === "advisory" ? "moves wait for approval" : "carried out by themselves"}</span>
        )}{" "}
        <span className="muted">
          {times}
          {planner.rounds_given_up > 0 && `; ${count(planner.rounds_given_up)} given up since the server started`}
        </span>
      </span>
    </Fact>
  );
}
