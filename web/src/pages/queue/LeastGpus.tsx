// The fewest GPUs as a slider: each choice has the planner solve its round once more with it, and nothing changes until it is applied.

import { Slider } from "@mantine/core";
import "@mantine/core/styles/Slider.css";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useCan } from "../../api/session";
import { Failed } from "../../parts/Panel";
import { ForeseenOutcome } from "../../parts/Outcome";
import { Apply } from "./Apply";
import { edit, leastChoices } from "./edits";
import type { JobDetail } from "./queries";

/** A solve costs the server a round: passing by a choice asks for none. */
const PAUSE_MS = 400;

const gpus = (count: number) => `${count} ${count === 1 ? "GPU" : "GPUs"}`;

export function LeastGpus({ job }: { job: JobDetail }) {
  const may = useCan("user");
  const { id, gpus_min: now, gpus_max: max, gpu_sizes: sizes } = job;
  const choices = useMemo(() => leastChoices({ id, gpus_min: now, gpus_max: max, gpu_sizes: sizes }), [id, now, max, sizes]);
  const [chosen, setChosen] = useState<number>();
  const least = chosen ?? now;
  const [asked] = useDebouncedValue(chosen, PAUSE_MS);
  const differs = least !== now;
  const answer = useQuery({
    queryKey: ["least-gpus", id, now, max, asked],
    queryFn: () => edit(job, { gpusMin: asked! }, { dryRun: true, reason: undefined, key: crypto.randomUUID() }),
    enabled: asked !== undefined && asked !== now,
    staleTime: 60_000,
    retry: false,
  });

  if (!job.spec) return null;
  if (!("training" in job.spec)) {
    return <p className="muted">It runs at {gpus(now)} alone: only a job with a training section in its specification has a range of sizes.</p>;
  }
  if (choices.length < 2) return null;
  return (
    <div className="stack" data-testid="least-gpus">
      <div className="row">
        <span>Fewest GPUs it may start with</span>
        <b>{least}</b>
        <span className="muted">{differs ? `${now} now` : "as it is"}; {max} at most</span>
        <span className="space" />
        {differs && (
          <>
            <button className="link" onClick={() => setChosen(undefined)}>
              back to {now}
            </button>
            <Apply job={job} change={{ gpusMin: least }} />
          </>
        )}
      </div>
      <Slider
        color="var(--accent)"
        size={6}
        thumbSize={24}
        min={0}
        max={choices.length - 1}
        step={1}
        value={Math.max(0, choices.indexOf(least))}
        onChange={(at) => setChosen(choices[at])}
        label={(at) => gpus(choices[at] ?? now)}
        thumbLabel="Fewest GPUs it may start with"
        thumbValueText={(at) => gpus(choices[at] ?? now)}
        disabled={!may}
        className="queue-slider"
      />
      {!may && <p className="muted">Asking what another size would do is for the role user and above.</p>}
      <div aria-live="polite">
        {!differs ? (
          <p className="muted">Move it: the planner solves its round again with what you choose.</p>
        ) : asked !== least || answer.isPending ? (
          <p className="muted">solving the round again with {gpus(least)} …</p>
        ) : answer.error ? (
          <Failed error={answer.error} asked={answer} />
        ) : (
          <ForeseenOutcome of={answer.data.foreseen} />
        )}
      </div>
    </div>
  );
}
