// Goodput in figures: now, or at the end of a window in the past.

import type { Overview } from "../../api/client";
import { useOverview } from "../../api/queries";
import { count, fixed, gpuHours, si, signedPercent, times } from "../../lib/format";
import { type Asked, Panel } from "../../parts/Panel";
import { Tile } from "../../parts/Tile";
import { WINDOWS, type WindowName } from "../../parts/WindowPicker";
import type { History } from "./asked";
import { BASELINES, type BaselineName } from "./baselines";
import { MfuTile } from "./MfuTile";
import type { Gain } from "./gain";

interface Props {
  history: Asked<History>;
  gain: Gain | undefined;
  /** A past moment, of which less is known. */
  at: string | undefined;
  window: WindowName;
  over: BaselineName;
}

export function Facts({ history, gain, at, window, over }: Props) {
  const now = useOverview().data;
  const overview = at ? undefined : now;
  return (
    <Panel title={at ? "Then" : "Now"} id="facts" className="span-12" asked={history} everySeconds={60} height={96}>
      {(data) => {
        const newest = data.series[0]?.points.at(-1);
        const goodput = overview?.goodput_tokens_per_second ?? newest?.goodput_tokens_per_second;
        const throughput = overview?.throughput_tokens_per_second ?? newest?.throughput_tokens_per_second;
        return (
          <div className="tiles">
            <Tile
              testId="fact-goodput"
              title="Goodput"
              value={si(goodput)}
              unit="reference tokens/s"
              note="throughput × efficiency per token, of all running jobs"
            />
            <Tile
              testId="fact-throughput"
              title="Throughput"
              value={si(throughput)}
              unit="raw tokens/s"
              note={goodput && throughput ? `${times(goodput / throughput)} per token, of all together` : "nothing trains"}
            />
            {overview && <MfuTile now={overview} title="Goodput MFU" testId="fact-mfu" />}
            {overview && <FairShare overview={overview} />}
            <Tile
              testId="fact-gain"
              title={`Beyond ${BASELINES[over].name}`}
              value={signedPercent(gain?.share)}
              unit={gain?.gpuHours == null ? "" : `${gain.gpuHours < 0 ? "−" : "+"}${gpuHours(Math.abs(gain.gpuHours))}`}
              note={gain?.gpuHours == null ? "not worked out" : `of ${gpuHours(gain.held)} held in the ${WINDOWS[window].words} before; what it is held against is predicted`}
            />
          </div>
        );
      }}
    </Panel>
  );
}

function FairShare({ overview }: { overview: Overview }) {
  const running = overview.jobs_by_state.running ?? 0;
  return (
    <Tile
      testId="fact-fair"
      title="Speed-ups"
      value={fixed(overview.speed_up_sum, 1)}
      unit={`over ${count(running)} running jobs`}
      note="what each makes over what an equal share would give it, added up"
    />
  );
}
