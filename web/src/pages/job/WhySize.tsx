// Why the job has so many GPUs: what each size would bring, what the next one would add, what its GPUs are worth to others, and what stands
// between it and more.

import { useMemo, useState } from "react";
import type { Explanation, SeriesPoint } from "../../api/client";
import { count, fixed, layoutOf, si, signedPercent, times } from "../../lib/format";
import { PlanLink } from "../../parts/Name";
import { Outcome } from "../../parts/Outcome";
import { Empty, Failed, Loading, Panel } from "../../parts/Panel";
import { ReservedSentence } from "../../parts/Reservation";
import { Resize } from "./Actions";
import { CurveChart } from "./CurveChart";
import { SizeTable } from "./SizeTable";
import { type Curve, type JobDetail, hasEnded, useCurve, useExplanation } from "./asks";
import { measuredAt } from "./shape";
import { gpusOf, sentence } from "./words";

/** Answers to "what if" that are shown at once. */
const ANSWERS = 4;

export function WhySize({ job, points }: { job: JobDetail; points: readonly SeriesPoint[] }) {
  const curve = useCurve(job);
  const explanation = useExplanation(job);
  const [asTable, setAsTable] = useState(false);
  const measured = useMemo(() => measuredAt(points), [points]);
  const ended = hasEnded(job.state);
  return (
    <Panel
      title={ended ? "What other sizes would bring" : `Why ${job.gpus > 0 ? gpusOf(job.gpus) : "no GPUs"}?`}
      id="job-why"
      note={curve.data?.gpu_type ?? undefined}
      asked={curve}
      everySeconds={60}
      height={320}
      tools={
        curve.data && curve.data.points.length > 0 ? (
          <button className="link" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
            {asTable ? "as chart" : "as table"}
          </button>
        ) : undefined
      }
    >
      {(data) => (
        <div className="stack">
          {explanation.data && (
            <p data-testid="job-headline">
              <ReservedSentence code={explanation.data.reasons[0]?.code}>{capital(sentence(explanation.data.headline))}</ReservedSentence>
            </p>
          )}
          <Sizes curve={data} measured={measured} asTable={asTable} />
          <Next curve={data} explanation={explanation.data} />
          {explanation.error ? (
            <Failed error={explanation.error} asked={explanation} />
          ) : explanation.data ? (
            <Account explanation={explanation.data} />
          ) : (
            <Loading height={60} />
          )}
          {!ended && (
            <p className="row">
              <Resize job={job} label="If it had another size …" /> <span className="muted">says who would lose, before anything is done</span>
            </p>
          )}
        </div>
      )}
    </Panel>
  );
}

function Sizes({ curve, measured, asTable }: { curve: Curve; measured: ReadonlyMap<number, number>; asTable: boolean }) {
  if (curve.points.length === 0) return <Empty>{sentence(curve.reason ?? "No size of it is known")}</Empty>;
  // Of what tells nothing of itself every size that can be is as good as another.
  const modelled = curve.points.some((point) => point.goodput_tokens_per_second > 0);
  if (asTable || !modelled) {
    return (
      <>
        {!modelled && <p className="muted">What sizes would bring is not known: the job says nothing of what it computes (<code>training</code> of its specification).</p>}
        <SizeTable points={curve.points} measured={measured} />
      </>
    );
  }
  const crosses = curve.points.filter((point) => point.infeasible != null);
  return (
    <div>
      <CurveChart points={curve.points} measured={measured} />
      <p className="job-legend muted">
        goodput in reference tokens/s over GPUs · ● measured · ○ predicted, with its deciles · ◎ now{crosses.length > 0 && " · ✕ cannot be"}
      </p>
      {curve.reason && <p className="warn">{sentence(curve.reason)}</p>}
      {crosses.length > 0 && (
        <details>
          <summary>
            {count(crosses.length)} of {count(curve.points.length)} sizes cannot be
          </summary>
          <ul className="job-reasons">
            {crosses.map((point) => (
              <li key={point.gpus}>
                ✕ {gpusOf(point.gpus)}: {point.infeasible}
              </li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}

/** What the next larger size would add, and what it would take from others. */
function Next({ curve, explanation }: { curve: Curve; explanation: Explanation | undefined }) {
  const feasible = curve.points.filter((point) => point.infeasible == null && point.goodput_tokens_per_second > 0);
  const chosen = feasible.find((point) => point.chosen);
  const next = chosen && feasible.find((point) => point.gpus > chosen.gpus);
  const limits = explanation?.limits ?? [];
  const marginal = explanation?.marginal_speed_up;
  return (
    <ul className="job-reasons" data-testid="job-next">
      {chosen && next && (
        <li>
          <strong>{gpusOf(next.gpus)}</strong> would bring {signedPercent(next.goodput_tokens_per_second / chosen.goodput_tokens_per_second - 1)} goodput
          {marginal != null && <>, {signed(marginal)} speed-up over its fair share</>} (a token then counts {times(next.efficiency)}).
        </li>
      )}
      {chosen && !next && <li>No larger size can be.</li>}
      {limits.map((limit) => (
        <li key={limit.of}>
          Its next better choice takes {count(limit.needed)} more {limit.of}, of which {count(limit.left)} are left.{" "}
          {limit.price > 0 && (
            <>
              Others would lose <strong>{fixed(limit.price)}</strong> by that{limit.needed > 0 && <>: {fixed(limit.price / limit.needed, 3)} for each</>}.{" "}
            </>
          )}
        </li>
      ))}
      {limits.some((limit) => limit.price > 0) && <li className="muted">Losses and speed-ups are in units of the objective: 1 is what a job does on its fair share.</li>}
    </ul>
  );
}

function Account({ explanation }: { explanation: Explanation }) {
  const { runner_up: runnerUp, unmoved, reasons, counterfactuals = [], plan_id: plan, left_out: leftOut } = explanation;
  return (
    <>
      <ul className="job-reasons">
        {unmoved && (
          <li>
            {gpusOf(unmoved.to_gpus)} instead of {unmoved.from_gpus} would gain it {signedPercent(unmoved.gain_pct / 100)}, but: {sentence(unmoved.detail)}
          </li>
        )}
        {runnerUp && (
          <li>
            Runner-up: {gpusOf(runnerUp.gpus)}
            {runnerUp.configuration && <span className="mono"> {layoutOf(runnerUp.configuration.layout, runnerUp.configuration.execution)}</span>}, speed-up{" "}
            {fixed(runnerUp.speed_up)}.
          </li>
        )}
        {reasons.map((reason, index) => (
          <li key={`${reason.code}-${index}`} className={reason.binding ? undefined : "muted"}>
            {reason.binding && (
              <span className="warn" title="lifting this alone would change the outcome">
                binding:{" "}
              </span>
            )}
            <ReservedSentence code={reason.code}>{sentence(reason.detail)}</ReservedSentence>
          </li>
        ))}
        {plan && (
          <li className="muted">
            Decided in plan <PlanLink id={plan} />.
          </li>
        )}
      </ul>
      {leftOut && <p className="muted">{sentence(leftOut)}</p>}
      {counterfactuals.length > 0 && (
        <details open>
          <summary>What would change it</summary>
          <ul className="job-reasons" data-testid="job-counterfactuals">
            {counterfactuals.slice(0, ANSWERS).map((one) => (
              <li key={one.question}>
                {capital(one.question)}: <Outcome of={one} />
              </li>
            ))}
          </ul>
        </details>
      )}
      {explanation.prediction && (
        <p className="muted">
          The plan expects {si(explanation.prediction.goodput_tokens_per_second)} reference tokens/s: {fixed(explanation.prediction.speed_up)} times its fair share.
        </p>
      )}
    </>
  );
}

function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${fixed(Math.abs(value))}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
