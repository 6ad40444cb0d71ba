import type { ReactNode } from "react";
import type { Job, Node } from "../api/client";
import { fixed, percent, si } from "../lib/format";

/** Five numbers, each with its denominator. */
export function Tiles({ jobs, nodes }: { jobs: Job[]; nodes: Node[] }) {
  const gpus = nodes.flatMap((node) => node.gpus);
  const healthy = gpus.filter((gpu) => gpu.healthy).length;
  const busy = gpus.filter((gpu) => gpu.job_id).length;
  const running = jobs.filter((job) => job.state === "running");
  const waiting = jobs.filter((job) => job.state === "queued" || job.state === "held");
  const sum = (pick: (job: Job) => number | null | undefined) =>
    running.reduce((total, job) => total + (pick(job) ?? 0), 0);
  const throughput = sum((job) => job.throughput_tokens_per_second);
  const goodput = sum((job) => job.goodput_tokens_per_second);
  const changes = jobs.reduce((total, job) => total + job.batch_changes, 0);
  const moves = jobs.reduce((total, job) => total + job.reconfigurations, 0);
  return (
    <div className="tiles">
      <Tile label="Goodput" value={si(goodput)} of={`of ${si(throughput)} tokens/s raw`} />
      <Tile
        label="Efficiency"
        value={throughput > 0 ? fixed(goodput / throughput) : "–"}
        of="reference tokens per raw token"
      />
      <Tile label="GPUs busy" value={String(busy)} of={`of ${healthy} healthy, ${gpus.length} in all`} />
      <Tile label="Jobs running" value={String(running.length)} of={`${waiting.length} waiting`} />
      <Tile label="Changes" value={String(changes + moves)} of={`${changes} of batch, ${moves} of GPUs`} />
      <Tile
        label="GPU share in use"
        value={healthy > 0 ? percent(busy / healthy) : "–"}
        of={`${healthy - busy} idle`}
      />
    </div>
  );
}

function Tile({ label, value, of }: { label: string; value: string; of: ReactNode }) {
  return (
    <section className="panel tile" aria-label={label}>
      <div className="muted">{label}</div>
      <div className="value">{value}</div>
      <div className="of">{of}</div>
    </section>
  );
}
