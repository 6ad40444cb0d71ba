// What can be done about a plan. An approval names the plan's hash, so that nothing is approved but what was read; where the cluster has changed
// since, the server refuses, and the page is told so that it can say what.

import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback } from "react";
import { ApiError, type Plan, api, unwrap } from "../../api/client";
import { Act, type Doing } from "../../parts/Act";
import { CopyAs } from "../../parts/CopyAs";
import { keepProposal, propose } from "./asks";
import { inWords, sentence } from "./words";

interface Props {
  plan: Plan;
  /** Whether moves were left out since it was made. */
  pending: boolean;
  /** Of the plan, by the server: it cannot be approved any more. */
  onConflict: (plan: string, error: ApiError) => void;
}

const LISTED = 8;

export function Actions({ plan, pending, onConflict }: Props) {
  const carriedOut = plan.state === "adopted" || plan.state === "superseded";
  return (
    <div className="row plan-actions" data-testid="plan-actions">
      {plan.state === "proposed" && <Approve plan={plan} pending={pending} onConflict={onConflict} />}
      {plan.state === "proposed" && <Reject plan={plan} onConflict={onConflict} />}
      {carriedOut && plan.moves.some((move) => move.from_gpus > 0) && <RollBack plan={plan} />}
      <Propose waits={plan.state === "proposed"} />
      <Link to="/settings" search={{ tab: "policy" }}>
        What is approved by itself
      </Link>
      {plan.state === "proposed" && <CopyAs command={`headway plan approve ${plan.id}${plan.hash ? ` --hash ${plan.hash}` : ""}`} />}
    </div>
  );
}

/** A refusal that tells of a change is told to the page as well. */
async function watched<T>(plan: string, answer: Promise<T>, onConflict: Props["onConflict"]): Promise<T> {
  try {
    return await answer;
  } catch (failed) {
    if (failed instanceof ApiError && failed.status === 409) onConflict(plan, failed);
    throw failed;
  }
}

function Approve({ plan: { id, hash, moves }, pending, onConflict }: Props) {
  const request = useCallback(
    ({ dryRun, reason, key }: Doing) => {
      const params = { path: { id }, query: { dry_run: dryRun }, header: { "Idempotency-Key": key } };
      const body = { hash: hash || null, reason: reason ?? null };
      return watched(id, unwrap(api.POST("/api/v1/plans/{id}/approve", { params, body })), onConflict);
    },
    [id, hash, onConflict],
  );
  return (
    <Act
      label="Approve"
      title="Approve this plan"
      role="operator"
      hotkey="a"
      disabled={pending ? "solve again first: this plan still moves what you left out" : moves.length === 0 ? "it moves nobody" : undefined}
      request={request}
      effect={(answer) => <Final plan={answer} />}
    />
  );
}

/** In words, right before it is done. */
function Final({ plan }: { plan: Plan }) {
  return (
    <div data-testid="plan-final">
      <p>
        <strong>{sentence(plan.moves)}</strong>
      </p>
      <ul className="plan-list">
        {plan.moves.slice(0, LISTED).map((move) => (
          <li key={move.job_id}>{inWords(move)}</li>
        ))}
        {plan.moves.length > LISTED && <li className="muted">and {plan.moves.length - LISTED} more</li>}
      </ul>
      {(plan.terms?.force.length ?? 0) > 0 && <p className="muted">Later rounds may move again what was forced, once its protection after a move is over; pin a job to keep it.</p>}
      {plan.hash && (
        <p className="muted">
          What is approved has the hash <code>{plan.hash.slice(0, 12)}…</code>, and nothing else is.
        </p>
      )}
    </div>
  );
}

function Reject({ plan: { id, moves }, onConflict }: Omit<Props, "pending">) {
  const request = useCallback(
    ({ dryRun, reason, key }: Doing) => {
      const params = { path: { id }, query: { dry_run: dryRun }, header: { "Idempotency-Key": key } };
      return watched(id, unwrap(api.POST("/api/v1/plans/{id}/reject", { params, body: { reason: reason ?? null } })), onConflict);
    },
    [id, onConflict],
  );
  const effect = () => (
    <p>
      The proposal is dropped, and {moves.length === 1 ? "its move is" : `its ${moves.length} moves are`} not made. Where it still is the best, a later round
      proposes it anew. The reason stays with the plan.
    </p>
  );
  return <Act label="Reject" title="Reject this plan" role="operator" hotkey="r" danger request={request} effect={effect} />;
}

/** Goes to a proposal that was just made. */
function useGoTo(): (answer: Plan | null) => void {
  const [queries, navigate] = [useQueryClient(), useNavigate()];
  return (answer) => {
    if (!answer) return;
    keepProposal(queries, answer);
    void navigate({ to: "/plan", search: { plan: answer.id } });
  };
}

function RollBack({ plan: { id, moves } }: { plan: Plan }) {
  const go = useGoTo();
  const request = useCallback(
    async ({ dryRun, reason, key }: Doing): Promise<Plan | null> => {
      // A proposal moves nothing: there is no dry run of it.
      if (dryRun) return null;
      const params = { path: { id }, header: { "Idempotency-Key": key } };
      return unwrap(api.POST("/api/v1/plans/{id}/rollback", { params, body: { reason: reason ?? null } }));
    },
    [id],
  );
  const moved = moves.filter((move) => move.from_gpus > 0).length;
  const effect = () => (
    <p>
      A plan is made that gives {moved === 1 ? "the job that was moved" : `the ${moved} jobs that were moved`} what they had before, as far as they live. It
      moves nothing before it is approved. A proposal that waits now is dropped.
    </p>
  );
  return <Act label="Roll back …" title="Propose the way back" role="operator" request={request} effect={effect} onDone={go} />;
}

export function Propose({ waits, label = "Ask for a better plan …" }: { waits: boolean; label?: string }) {
  const go = useGoTo();
  const request = useCallback(async ({ dryRun, reason, key }: Doing): Promise<Plan | null> => (dryRun ? null : propose(null, [], key, reason ?? null)), []);
  const effect = () => (
    <p>A round is run now. Its plan moves nothing before it is approved.{waits && " The proposal that waits now is dropped for it."}</p>
  );
  return <Act label={label} title="Ask for a better plan" role="operator" request={request} effect={effect} onDone={go} />;
}
