// What each number of GPUs would bring, as a table.

import { count, fixed, si, times } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import type { CurvePoint } from "./asks";
import { configurationOf } from "./words";

const HEIGHT = 320;

export function SizeTable({ points, measured }: { points: readonly CurvePoint[]; measured: ReadonlyMap<number, number> }) {
  const columns: Column<CurvePoint>[] = [
    { id: "gpus", header: "GPUs", number: true, width: "60px", cell: (point) => (point.chosen ? <strong>◎ {count(point.gpus)}</strong> : count(point.gpus)) },
    {
      id: "goodput",
      header: "predicted",
      number: true,
      width: "84px",
      hint: "reference tokens/s, with first and last decile on hover",
      cell: (point) => (
        <span title={`${si(point.goodput_low_tokens_per_second)} to ${si(point.goodput_high_tokens_per_second)}`}>
          {point.infeasible == null && point.goodput_tokens_per_second > 0 ? si(point.goodput_tokens_per_second) : "–"}
        </span>
      ),
    },
    { id: "measured", header: "measured", number: true, width: "76px", hint: "reference tokens/s, the newest at this size", cell: (point) => si(measured.get(point.gpus)) },
    {
      id: "speed-up",
      header: "speed-up",
      number: true,
      width: "70px",
      hint: "over what the job does on its fair share",
      cell: (point) => fixed(point.speed_up),
    },
    { id: "token", header: "per token", number: true, width: "74px", from: "tablet", cell: (point) => (point.infeasible == null ? times(point.efficiency) : "–") },
    {
      id: "how",
      header: "layout and batch, or why not",
      width: "260px",
      cell: (point) =>
        point.infeasible != null ? (
          <span className="muted" title={point.infeasible}>
            ✕ {point.infeasible}
          </span>
        ) : (
          <span className="mono" title={runnerUps(point)}>
            {configurationOf(point.configuration)}
          </span>
        ),
    },
  ];
  return <DataTable label="What each size would bring" rows={points} columns={columns} keyOf={(point) => String(point.gpus)} height={HEIGHT} testId="job-sizes" />;
}

function runnerUps(point: CurvePoint): string {
  const others = (point.runner_ups ?? []).map((other) => `${configurationOf(other.configuration)}: ${times(other.relative_goodput)} of it`);
  return [configurationOf(point.configuration), ...others].join("\n");
}
