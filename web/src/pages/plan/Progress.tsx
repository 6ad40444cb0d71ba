// How far a plan that was approved has come, move by move, and what came of it against what was said.

import type { Plan } from "../../api/client";
import { count, gpuHours, signedPercent } from "../../lib/format";
import { gained, stoodStill } from "./account";
import { outcomeOf } from "./words";

const ORDER = ["done", "starting", "stopping", "waiting", "overtaken"] as const;

export function Progress({ plan }: { plan: Plan }) {
  const told = plan.moves.filter((move) => move.outcome);
  if (told.length === 0) return null;
  const many = (state: string) => told.filter((move) => move.outcome?.state === state).length;
  const over = many("done") + many("overtaken");
  const [still, gain] = [stoodStill(plan.moves), gained(plan.moves)];
  return (
    <div className="plan-progress" data-testid="plan-progress">
      <progress max={told.length} value={over} aria-label="moves that are done or overtaken" />
      <span>
        {count(over)} of {count(told.length)} over:{" "}
        {ORDER.filter((state) => many(state) > 0).map((state) => {
          const { glyph, tone, word } = outcomeOf(state);
          return (
            <span key={state} className={`plan-step ${tone}`}>
              <span aria-hidden>{glyph}</span> {count(many(state))} {word}
            </span>
          );
        })}
      </span>
      {still && (
        <span>
          Stood still {gpuHours(still.was)}, {gpuHours(still.said)} was said <span className="muted">(of {count(still.known)} moves)</span>
        </span>
      )}
      {gain && (
        <span>
          Goodput {signedPercent(gain.was)}, {signedPercent(gain.said)} was promised <span className="muted">(of {count(gain.known)} moves)</span>
        </span>
      )}
    </div>
  );
}
