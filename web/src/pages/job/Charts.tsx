// Goodput, what it is made of and why, one under the other with one cursor: throughput, what a token is worth, and the noise scale that says so
// beside the batch.

import { type ReactNode, useMemo } from "react";
import { Chart, type Line } from "../../chart/Chart";
import type { Mark } from "../../chart/marks";
import { colourOf } from "../../lib/colour";
import { si, times } from "../../lib/format";
import type { AllocationRecord, JobDetail } from "./asks";
import { type Track, valuesOf } from "./shape";
import { sequenceTokens } from "./words";

/** Charts of this name share their cursor, and the ribbon with them. */
export const SYNC = "job";

interface Props {
  job: JobDetail;
  track: Track;
  allocations: readonly AllocationRecord[];
  marks: Mark[];
  from: number;
  to: number;
}

export function Charts({ job, track, allocations, marks, from, to }: Props) {
  const colour = colourOf(job.id);
  const tokens = sequenceTokens(job);
  const lines = useMemo(() => linesOf(track, allocations, colour, tokens), [track, allocations, colour, tokens]);
  const common = { times: track.times, marks, sync: SYNC, from, to };
  return (
    <>
      <Titled name="Goodput" now={si(job.goodput_tokens_per_second)} unit="reference tokens/s; dashed: what the plan had predicted">
        <Chart {...common} label={`Goodput of ${job.name}`} lines={lines.goodput} height={180} testId="chart-goodput" />
      </Titled>
      <Titled name="Throughput" now={si(job.throughput_tokens_per_second)} unit="tokens/s">
        <Chart {...common} label={`Throughput of ${job.name}`} lines={lines.throughput} height={150} testId="chart-throughput" />
      </Titled>
      <Titled name="A token is worth" now={times(job.efficiency)} unit="of one at the reference batch; above ×1 below it">
        <Chart {...common} label={`Worth of a token of ${job.name}`} lines={lines.efficiency} format={times} fromZero={false} height={150} testId="chart-efficiency" />
      </Titled>
      <Titled name="Noise scale φ" now={si(job.noise_scale_tokens)} unit={noiseUnit(job)}>
        <Chart {...common} label={`Noise scale and batch of ${job.name}`} lines={lines.noise} log height={160} testId="chart-noise" />
      </Titled>
    </>
  );
}

/** The interval is told of the present φ alone. */
function noiseUnit(job: JobDetail): string {
  return `${noiseInterval(job)}and the batch, in tokens, on a log axis: a batch above φ is worth less per token`;
}

function noiseInterval({ noise_low_tokens: low, noise_high_tokens: high }: JobDetail): string {
  if (low == null) return "";
  return high == null ? `at least ${si(low)} now, as noise drowns the gradient, ` : `${si(low)} to ${si(high)} at 95 % now, `;
}

function Titled({ name, now, unit, children }: { name: string; now: string; unit: string; children: ReactNode }) {
  return (
    <section aria-label={name}>
      <h3 className="job-chart-title">
        {name} <span className="job-chart-now">{now}</span> <span className="muted">{unit}</span>
      </h3>
      {children}
    </section>
  );
}

function linesOf(track: Track, allocations: readonly AllocationRecord[], colour: string, sequence: number | undefined) {
  const predicted = new Map(allocations.map((one) => [one.generation, one.predicted_goodput_tokens_per_second]));
  const of = (value: Parameters<typeof valuesOf>[1]) => valuesOf(track, value);
  const assumed = track.points.some((point) => point !== null && point.noise_scale_tokens == null);
  const batch: Line[] = sequence
    ? [{ name: "batch, tokens", colour: "var(--c0)", values: of((point) => positive(point.global_batch_sequences * sequence)), stepped: true }]
    : [];
  const lines: Record<"goodput" | "throughput" | "efficiency" | "noise", Line[]> = {
    goodput: [
      { name: "measured", colour, values: of((point) => point.goodput_tokens_per_second), area: true },
      { name: "predicted", colour: "var(--muted)", values: of((point) => positive(predicted.get(point.generation))), dashed: true, stepped: true },
    ],
    throughput: [{ name: "tokens/s", colour: "var(--accent)", values: of((point) => point.throughput_tokens_per_second) }],
    efficiency: [
      { name: "by the noise scale", colour: "var(--c2)", values: of((point) => (point.noise_scale_tokens == null ? null : point.efficiency)) },
      // Where no noise scale is known a token counts as one of the reference batch.
      ...(assumed
        ? [{ name: "assumed", colour: "var(--muted)", values: of((point) => (point.noise_scale_tokens == null ? point.efficiency : null)), dashed: true }]
        : []),
    ],
    noise: [{ name: "φ, tokens", colour: "var(--c5)", values: of((point) => positive(point.noise_scale_tokens)) }, ...batch],
  };
  return lines;
}

/** A log axis has no place for zero. */
function positive(value: number | null | undefined): number | null {
  return value != null && value > 0 ? value : null;
}
