// What was made beyond a baseline, moment by moment and added up, as GPU-hours.

import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import type { EventRecord } from "../../api/client";
import { Chart, type Line } from "../../chart/Chart";
import { duration, gpuHours, si, signedPercent } from "../../lib/format";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { WINDOWS, type WindowName } from "../../parts/WindowPicker";
import { FIGURES_SECONDS } from "./asked";
import { BASELINES, BASELINE_NAMES, type BaselineName } from "./baselines";
import type { Gain } from "./gain";
import { marksOf } from "./marks";

interface Props {
  gain: Asked<Gain>;
  told: EventRecord[] | undefined;
  window: WindowName;
  over: BaselineName;
}

export function GainOver({ gain, told, window, over }: Props) {
  return (
    <Panel
      title={`Gain over ${BASELINES[over].name}`}
      note="predicted, not measured"
      id="gain"
      className="span-12"
      asked={gain}
      everySeconds={FIGURES_SECONDS}
      height={220}
      tools={<Over value={over} />}
    >
      {(data) =>
        data.comparedSeconds === 0 ? (
          <Empty>
            It was not worked out within this time: for that at least one job, and at most 200, want GPUs, and one of them has a model, as jobs with
            a <code>training</code> section have.
          </Empty>
        ) : (
          <Drawn gain={data} told={told} window={window} over={over} />
        )
      }
    </Panel>
  );
}

function Over({ value }: { value: BaselineName }) {
  return (
    <nav className="goodput-groups" aria-label="What it is held against">
      {BASELINE_NAMES.map((over) => (
        <Link key={over} to="." search={(before) => ({ ...before, over })} resetScroll={false} aria-current={over === value ? "true" : undefined}>
          {BASELINES[over].name}
        </Link>
      ))}
    </nav>
  );
}

const hours = (value: number) => gpuHours(value).replace(" GPU-h", "");

function Drawn({ gain, told, window, over }: { gain: Gain; told: EventRecord[] | undefined; window: WindowName; over: BaselineName }) {
  const lines = useMemo(
    (): Line[] => [
      { name: "goodput beyond it, tokens/s", colour: "var(--accent)", values: gain.beyond, area: true, dashed: true, stepped: true },
      { name: "added up, GPU-hours (right)", colour: "var(--c1)", values: gain.running, dashed: true, scale: "right" },
    ],
    [gain],
  );
  const marks = useMemo(() => marksOf(told), [told]);
  const less = (gain.gpuHours ?? 0) < 0;
  return (
    <>
      <p data-testid="gain-sentence">
        {gain.gpuHours === null ? (
          "Nothing was made that a GPU-hour could be priced by."
        ) : (
          <>
            <strong className={less ? "warn" : "good"}>
              {signedPercent(gain.share)}, {gpuHours(Math.abs(gain.gpuHours))} {less ? "lost" : "gained"}
            </strong>{" "}
            of {gpuHours(gain.held)} that jobs held in the {WINDOWS[window].words} before. A GPU-hour is worth the {si(gain.tokensPerGpuHour)}{" "}
            reference tokens that one made on average.
          </>
        )}{" "}
        {gain.windowSeconds - gain.comparedSeconds > gain.windowSeconds * 0.02 && (
          <span className="muted">
            Compared for {duration(gain.comparedSeconds)} of {duration(gain.windowSeconds)}; the rest counts as nothing.
          </span>
        )}
      </p>
      <Chart label={`Goodput beyond ${BASELINES[over].name}`} times={gain.times} lines={lines} marks={marks} height={180} formatRight={hours} testId="chart-gain" />
      <p className="muted">
        {BASELINES[over].means} It pays for no start and no pause. Tokens of great and of small models count alike here.
      </p>
    </>
  );
}
