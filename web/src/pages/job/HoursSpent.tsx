// Where the GPU-hours of the job went. The parts come from the server and add up to the total; where they do not, that is said.

import { gpuHours, percent } from "../../lib/format";
import { type Bar, Bars } from "../../parts/Bars";
import { Empty, Panel } from "../../parts/Panel";
import { type JobDetail, useGpuTime } from "./asks";

/** What the parts may leave unaccounted of the total before that is an alarm. */
const ALARM = 0.02;

export function HoursSpent({ job }: { job: JobDetail }) {
  const time = useGpuTime(job);
  return (
    <Panel title="Where its GPU-hours went" id="job-hours" asked={time} everySeconds={10} height={150}>
      {(data) => {
        const total = data.total_gpu_hours;
        if (total <= 0) return <Empty>It has had no GPUs yet.</Empty>;
        const parts: [string, string, number, string][] = [
          ["training", "useful: steps that counted", data.training_gpu_hours, "var(--good)"],
          ["starting", "starting, to the first step", data.starting_gpu_hours, "var(--c4)"],
          ["rework", "lost steps, done again", data.rework_gpu_hours, "var(--bad)"],
          ["stopping", "stopping, to proven free", data.stopping_gpu_hours, "var(--c1)"],
          ["idle", "hung, until noticed", data.idle_gpu_hours, "var(--warn)"],
        ];
        const sum = parts.reduce((before, [, , hours]) => before + hours, 0);
        const bars: Bar[] = parts.map(([key, label, value, colour]) => ({ key, label, value, colour, note: percent(value / total) }));
        const rest = total - sum;
        const alarm = Math.abs(rest) > ALARM * total;
        return (
          <>
            <Bars label="Where its GPU-hours went" bars={bars} of={total} format={gpuHours} />
            <p className={alarm ? "warn" : "muted"} data-testid="job-hours-sum">
              sum {gpuHours(sum)} of {gpuHours(total)}
              {alarm && `: ${gpuHours(rest)} are unaccounted for`}
            </p>
          </>
        );
      }}
    </Panel>
  );
}
