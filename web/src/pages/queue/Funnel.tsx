// From all GPUs of the cluster to the sizes that a job could start at now: where its possibilities are lost.

import type { components } from "../../api/schema";
import { count } from "../../lib/format";
import { type Bar, Bars } from "../../parts/Bars";

type Stage = components["schemas"]["FunnelStage"];

/** The first step that leaves too little: fewer GPUs than it needs, or no size at all. */
export function breakingStep(stages: readonly Stage[], least: number): number {
  return stages.findIndex((stage) => (stage.of === "gpus" ? stage.left < least : stage.left === 0));
}

export function Funnel({ stages, least }: { stages: readonly Stage[]; least: number }) {
  const breaks = breakingStep(stages, least);
  const bars = (of: string): Bar[] =>
    stages.flatMap((stage, index) =>
      stage.of !== of
        ? []
        : [
            {
              key: stage.name,
              label: <span title={stage.name}>{stage.name}</span>,
              value: stage.left,
              note: (
                <span title={stage.detail}>
                  {index === breaks && of === "gpus" && `needs ${least}; `}
                  {stage.detail}
                </span>
              ),
              breaks: index === breaks,
              colour: index === breaks ? "var(--bad)" : "var(--accent)",
            },
          ],
    );
  const [gpus, sizes] = [bars("gpus"), bars("sizes")];
  return (
    <section aria-label="Where it could run" className="stack" data-testid="funnel">
      <h3>Where it could run</h3>
      {gpus.length > 0 && <Bars label="GPUs left after each condition" bars={gpus} of={gpus[0]!.value} format={(left) => `${count(left)} GPUs`} />}
      {sizes.length > 0 && (
        <Bars label="Sizes left after each condition" bars={sizes} of={sizes[0]!.value} format={(left) => `${count(left)} ${left === 1 ? "size" : "sizes"}`} />
      )}
      {breaks < 0 && <p className="muted">No condition alone rules it out: the reasons below say what else keeps it.</p>}
    </section>
  );
}
