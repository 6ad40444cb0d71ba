// One move in full: why, what it changes, where to, and what else the job could have had.

import type { ReactNode } from "react";
import type { Plan } from "../../api/client";
import { count, duration, fixed, si, signedPercent } from "../../lib/format";
import { JobLink, NodeLink } from "../../parts/Name";
import { Close } from "../../parts/Panel";
import type { Assignment, Move } from "./asks";
import { change, configuration, kindOf, layout, outcomeOf } from "./words";

interface Props {
  plan: Plan;
  move: Move;
  before: Assignment | undefined;
  onClose: () => void;
}

export function MoveDetail({ plan, move, before, onClose }: Props) {
  const verdict = plan.verdicts.find((one) => one.job_id === move.job_id);
  const after = plan.assignments.find((one) => one.job_id === move.job_id);
  const reasons = verdict?.reasons ?? [];
  const other = verdict?.runner_up;
  return (
    <section className="plan-detail" aria-label={`The move of ${move.job_name}`} data-testid="plan-move">
      <div className="row">
        <h3 className="row">
          <JobLink id={move.job_id} name={move.job_name} /> {kindOf(move).word}
        </h3>
        <span className="space" />
        <Close onClose={onClose} />
      </div>
      <dl className="plan-pairs">
        <Pair name="why">{move.reason}</Pair>
        {verdict && verdict.headline !== move.reason && <Pair name="verdict">{verdict.headline}</Pair>}
        <Pair name="configuration">{change(move.from_configuration, move.to_configuration, configuration)}</Pair>
        <Pair name="before">
          <Nodes of={before} gpus={move.from_gpus} />
        </Pair>
        <Pair name="after">
          <Nodes of={after} gpus={move.to_gpus} />
        </Pair>
        {verdict?.marginal_speed_up != null && (
          <Pair name="next size up">would add {fixed(verdict.marginal_speed_up)} to its speed-up over its fair share</Pair>
        )}
        {other && (
          <Pair name="next best">
            {count(other.gpus)} GPUs {other.configuration && `(${layout(other.configuration)})`}, speed-up ×{fixed(other.speed_up)} over its fair share
          </Pair>
        )}
        {move.outcome && (
          <Pair name="came of it">
            <Outcome move={move} of={move.outcome} />
          </Pair>
        )}
      </dl>
      {reasons.length > 0 && (
        <ul className="plan-reasons">
          {reasons.map((reason) => (
            <li key={reason.code + reason.detail}>
              <span aria-hidden>{reason.binding ? "●" : "○"}</span> {reason.code.replaceAll("_", " ")}: {reason.detail}
              {reason.binding && <span className="muted"> (this alone decides)</span>}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Pair({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Nodes({ of, gpus }: { of: Assignment | undefined; gpus: number }) {
  if (!of) return <>{gpus === 0 ? "no GPUs" : `${count(gpus)} GPUs`}</>;
  return (
    <span className="row">
      {of.slices.map((slice) => (
        <span key={slice.node_id} className="plan-slice">
          <NodeLink node={slice.node_id} name={slice.node_name ?? null} /> ×{slice.gpu_uuids.length}
        </span>
      ))}
    </span>
  );
}

function Outcome({ move, of }: { move: Move; of: NonNullable<Move["outcome"]> }) {
  const { glyph, tone, word } = outcomeOf(of.state);
  const { goodput_before_tokens_per_second: before, goodput_after_tokens_per_second: after } = of;
  return (
    <>
      <span className={tone}>
        <span aria-hidden>{glyph}</span> {word}
      </span>
      {of.downtime_seconds != null && `; stood still ${duration(of.downtime_seconds)} (${duration(move.downtime_seconds)} was said)`}
      {after != null &&
        `; goodput ${change(before ?? undefined, after, si)} tokens/s measured over ${duration(of.measured_seconds)} (${si(move.goodput_after_tokens_per_second)} was promised)`}
      {before != null && before > 0 && after != null && ` ${signedPercent(after / before - 1)}`}
    </>
  );
}
