// What was made beyond a static split of the cluster, moment by moment and added up, as GPU-hours.

import { useMemo } from "react";
import type { EventRecord } from "../../api/client";
import { Chart, type Line } from "../../chart/Chart";
import { duration, gpuHours, si, signedPercent } from "../../lib/format";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { WINDOWS, type WindowName } from "../../parts/WindowPicker";
import { FIGURES_SECONDS } from "./asked";
import type { Gain } from "./gain";
import { marksOf } from "./marks";

interface Props {
  gain: Asked<Gain>;
  told: EventRecord[] | undefined;
  window: WindowName;
}

export function GainOver({ gain, told, window }: Props) {
  return (
    <Panel
      title="Gain over a static split"
      note="predicted, not measured"
      id="gain"
      className="span-12"
      asked={gain}
      everySeconds={FIGURES_SECONDS}
      height={220}
    >
      {(data) =>
        data.comparedSeconds === 0 ? (
          <Empty>
            No split was worked out within this time. It is, once a minute, while at most 200 jobs want GPUs and at least one of them has a
            model: a job with a <code>training</code> section.
          </Empty>
        ) : (
          <Drawn gain={data} told={told} window={window} />
        )
      }
    </Panel>
  );
}

const hours = (value: number) => gpuHours(value).replace(" GPU-h", "");

function Drawn({ gain, told, window }: { gain: Gain; told: EventRecord[] | undefined; window: WindowName }) {
  const lines = useMemo(
    (): Line[] => [
      { name: "goodput beyond the split, tokens/s", colour: "var(--accent)", values: gain.beyond, area: true, dashed: true, stepped: true },
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
      <Chart label="Goodput beyond a static split" times={gain.times} lines={lines} marks={marks} height={180} formatRight={hours} testId="chart-gain" />
      <p className="muted">
        A static split gives the jobs of each minute an equal share of the nodes, at the reference batch and without a change, and pays for no
        start and no pause. Tokens of great and of small models count alike here.
      </p>
    </>
  );
}
