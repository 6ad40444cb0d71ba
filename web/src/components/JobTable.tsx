import { Skeleton } from "@mantine/core";
import type { Job } from "../api/client";
import { clock, duration, execution, fixed, percent, si } from "../lib/format";
import { GLYPHS } from "../lib/palette";

interface Props {
  jobs: Job[] | undefined;
  colours: Map<string, string>;
}

/** Jobs with their newest numbers. Ended jobs stay below, in grey. */
export function JobTable({ jobs, colours }: Props) {
  if (!jobs) return <Skeleton height={120} />;
  if (jobs.length === 0) {
    return (
      <p className="muted">
        No jobs yet. Submit one: <code>headway submit job.yaml</code>
      </p>
    );
  }
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Jobs, scrollable">
      <table className="jobs" data-testid="jobs">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col" className="number">GPUs</th>
            <th scope="col">dp × tp × pp</th>
            <th scope="col" className="number">Batch</th>
            <th scope="col" className="number">Tokens/s</th>
            <th scope="col" className="number">Noise scale</th>
            <th scope="col" className="number">Efficiency</th>
            <th scope="col" className="number">Goodput</th>
            <th scope="col" className="number">Loss</th>
            <th scope="col">Progress</th>
            <th scope="col">ETA</th>
            <th scope="col">Last change, and why</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <Row key={job.id} job={job} colour={colours.get(job.id)} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ job, colour }: { job: Job; colour: string | undefined }) {
  const degrees = job.layout ? `${job.layout.dp} × ${job.layout.tp} × ${job.layout.pp}` : "–";
  const layout = [degrees, ...execution(job.execution)].join(" ");
  return (
    <tr style={job.ended_at ? { color: "var(--muted)" } : undefined}>
      <td title={job.id}>
        <span className="swatch" style={{ background: colour }} />
        {job.name}
      </td>
      <td title={job.state_cause ?? undefined}>
        <span aria-hidden>{GLYPHS[job.state] ?? "•"}</span> {job.state}
      </td>
      <td className="number">
        {job.gpus} <span className="muted">of {job.gpus_max}</span>
      </td>
      <td>{layout}</td>
      <td className="number" title="global batch (micro-batch × accumulation), in sequences">
        {job.global_batch_sequences ?? "–"}
        {job.micro_batch_sequences != null && (
          <span className="muted">
            {" "}
            ({job.micro_batch_sequences}×{job.accumulation ?? 1})
          </span>
        )}
      </td>
      <td className="number">{si(job.throughput_tokens_per_second)}</td>
      <td className="number" title="gradient noise scale, tokens">
        {si(job.noise_scale_tokens)}
      </td>
      <td className="number">{fixed(job.efficiency)}</td>
      <td className="number">{si(job.goodput_tokens_per_second)}</td>
      <td className="number">{fixed(job.loss, 3)}</td>
      <td>
        {job.progress_fraction != null ? (
          <>
            <span className="progress" aria-hidden>
              <i style={{ width: `${Math.min(100, job.progress_fraction * 100)}%` }} />
            </span>
            {percent(job.progress_fraction)}
            {job.credit_tokens > 0 && job.target_tokens != null && (
              <span
                className="muted"
                title="theory's credit for batches below the reference: not confirmed by the job's own loss"
              >
                {" "}
                ({percent(job.credit_tokens / job.target_tokens)} credit)
              </span>
            )}
          </>
        ) : job.progress_tokens > 0 ? (
          `${si(job.progress_tokens)} tokens`
        ) : (
          "–"
        )}
      </td>
      <td>{duration(job.eta_seconds)}</td>
      <td className="reason">
        {job.last_change ? (
          <>
            <span title={job.last_change.at}>{clock(job.last_change.at)}</span> {job.last_change.reason}
          </>
        ) : (
          "–"
        )}
      </td>
    </tr>
  );
}
