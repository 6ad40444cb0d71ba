// How predictions turned out over thirty days: goodput and starts, in all, by model family and by GPU type.

import { Link } from "@tanstack/react-router";
import { count, duration, fixed, percent } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { CALIBRATION_SECONDS, type Calibration } from "./asked";
import { HELD, verdict } from "./jobs";

type OfGoodput = Calibration["goodput"][number];
type OfStarts = Calibration["starts"][number];

const FAMILIES: Record<string, string> = {
  under_1b: "decoders under 1 B",
  "1b_to_10b": "decoders of 1 to 10 B",
  "10b_to_100b": "decoders of 10 to 100 B",
  over_100b: "decoders over 100 B",
  curve: "throughput given by users",
  opaque: "nothing known of the job",
};

function nameOf({ gpu_type: type, model_family: family }: OfGoodput | OfStarts): string {
  if (type) return type === "unknown" ? "on an unknown GPU type" : `on ${type}`;
  return family ? (FAMILIES[family] ?? family) : "all";
}

function Band({ coverage, of }: { coverage: number | null | undefined; of: number }) {
  const word = verdict(coverage, of);
  if (word === undefined) return <span className="muted">none yet</span>;
  const fine = word === "as it should be";
  return (
    <span className={fine ? "good" : "warn"} title={`${percent(coverage)} of ${count(of)}; ${percent(HELD)} should be: ${word}`}>
      <span aria-hidden>{fine ? "✓" : "▲"}</span> {percent(coverage)} {fine ? "" : word}
    </span>
  );
}

function signed(value: number | null | undefined, text: (size: number) => string): string {
  return value == null ? "–" : `${value < 0 ? "−" : "+"}${text(Math.abs(value))}`;
}

const WHOSE = { id: "whose", header: "Of" };
const BAND_HINT = `how much came between the first and the last decile of what was said: ${percent(HELD)} should`;

const GOODPUT: Column<OfGoodput>[] = [
  { ...WHOSE, cell: (row) => nameOf(row) },
  { id: "predictions", header: "Predictions", number: true, width: "88px", cell: (row) => count(row.predictions), hint: "measured for a minute or more" },
  {
    ...{ id: "error", header: "Median error", number: true, width: "100px", hint: "of what was predicted" },
    cell: (row) => (row.median_error_pct == null ? "–" : `${fixed(row.median_error_pct, 1)} %`),
  },
  {
    ...{ id: "bias", header: "Bias", number: true, width: "96px", from: "tablet", hint: "above 0 more came than was predicted" },
    cell: (row) => signed(row.median_bias_pct, (size) => `${fixed(size, 1)} %`),
  },
  { id: "band", header: "In the band", width: "150px", cell: (row) => <Band coverage={row.coverage} of={row.with_band} />, hint: BAND_HINT },
];

const STARTS: Column<OfStarts>[] = [
  { ...WHOSE, cell: (row) => nameOf(row) },
  { id: "predictions", header: "Predictions", number: true, width: "88px", cell: (row) => count(row.predictions), hint: "that came true or are late" },
  { id: "error", header: "Median error", number: true, width: "100px", cell: (row) => duration(row.median_error_seconds) },
  {
    ...{ id: "bias", header: "Bias", number: true, width: "96px", from: "tablet", hint: "above 0 they came later" },
    cell: (row) => signed(row.median_bias_seconds, duration),
  },
  { id: "late", header: "Late", number: true, width: "48px", cell: (row) => count(row.late), hint: "still waiting though the last decile is over" },
  { id: "band", header: "In the band", width: "150px", cell: (row) => <Band coverage={row.coverage} of={row.predictions} />, hint: BAND_HINT },
];

const key = (row: OfGoodput | OfStarts) => `${row.gpu_type ?? ""} ${row.model_family ?? ""}`;

interface Props {
  calibration: Asked<Calibration>;
}

export function CalibratedGoodput({ calibration }: Props) {
  return (
    <Panel
      title="How goodput was predicted"
      note={spanOf(calibration.data)}
      id="calibration-goodput"
      className="span-6"
      asked={calibration}
      everySeconds={CALIBRATION_SECONDS}
      height={160}
    >
      {({ goodput, left_out: cut }) => {
        const [all] = goodput;
        if (!all) return <Empty>Nothing was predicted and measured yet. A job that trains for a minute is the first.</Empty>;
        return (
          <>
            <DataTable label="How goodput was predicted" rows={goodput} columns={GOODPUT} keyOf={key} height={260} testId="calibration-goodput" />
            <p className="muted">
              One prediction per grant and per change of batch or layout; {count(all.too_short)} were measured for less than a minute and are not counted.
              {cut && " The oldest are missing: there were more than are read at once."}
            </p>
          </>
        );
      }}
    </Panel>
  );
}

export function CalibratedStarts({ calibration }: Props) {
  return (
    <Panel
      title="How starts were predicted"
      note={spanOf(calibration.data)}
      id="calibration-starts"
      className="span-6"
      asked={calibration}
      everySeconds={CALIBRATION_SECONDS}
      height={160}
    >
      {({ starts }) => {
        const [all] = starts;
        if (!all) {
          return (
            <Empty>
              No start was predicted yet. That is done for jobs that wait: see the <Link to="/queue">queue</Link>.
            </Empty>
          );
        }
        return (
          <>
            <DataTable label="How starts were predicted" rows={starts} columns={STARTS} keyOf={key} height={260} testId="calibration-starts" />
            <p className="muted">The first prediction of each wait; {count(all.open)} jobs wait within what was predicted and are not counted.</p>
          </>
        );
      }}
    </Panel>
  );
}

function spanOf(calibration: Calibration | undefined): string | undefined {
  if (!calibration) return undefined;
  const days = (Date.parse(calibration.to) - Date.parse(calibration.from)) / 86_400_000;
  return `${Math.round(days)} days`;
}
