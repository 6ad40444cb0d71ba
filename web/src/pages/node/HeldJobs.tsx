// The jobs that hold GPUs of a node.

import type { components } from "../../api/schema";
import { duration, si } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink } from "../../parts/Name";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { State } from "../../parts/State";
import { useJobsOf } from "./queries";

type Schemas = components["schemas"];

interface Held {
  id: string;
  name: string;
  /** Here. */
  gpus: number;
  /** What is known of it, where the caller may know. */
  job: Schemas["Job"] | undefined;
}

const COLUMNS: Column<Held>[] = [
  { id: "name", header: "Job", cell: (held) => <JobLink id={held.id} name={held.name} /> },
  { id: "state", header: "State", cell: ({ job }) => job && <State state={job.state} cause={job.state_cause ?? null} />, width: "96px" },
  {
    id: "gpus",
    header: "GPUs here",
    cell: ({ gpus, job }) => (job ? `${gpus} of ${job.gpus}` : gpus),
    width: "84px",
    number: true,
    hint: "Of all its GPUs",
  },
  { id: "owner", header: "Owner", cell: ({ job }) => job?.owner, width: "96px", from: "tablet" },
  { id: "goodput", header: "Goodput", cell: ({ job }) => job && `${si(job.goodput_tokens_per_second)} ref tok/s`, width: "124px", number: true, from: "tablet" },
  { id: "eta", header: "Left", cell: ({ job }) => job && duration(job.eta_seconds), width: "76px", number: true, from: "tablet" },
];

export function HeldJobs({ asked, className }: { asked: Asked<Schemas["NodeGpus"]>; className: string }) {
  const here = new Map<string, Held>();
  for (const { job_id: id, job_name: name } of asked.data?.gpus ?? []) {
    if (!id) continue;
    const held = here.get(id) ?? { id, name: name ?? id.slice(-8), gpus: 0, job: undefined };
    here.set(id, { ...held, gpus: held.gpus + 1 });
  }
  const jobs = useJobsOf([...here.keys()].sort());
  const rows = [...here.values()].map((held) => ({ ...held, job: jobs.data?.items.find((job) => job.id === held.id) }));
  const busy = rows.reduce((sum, row) => sum + row.gpus, 0);
  const unknown = jobs.data ? rows.filter((row) => row.job === undefined).length : 0;
  return (
    <Panel title="Jobs here" id="node-jobs" className={className} note={asked.data && `${rows.length} on ${busy} of ${asked.data.gpus.length} GPUs`} asked={asked}>
      {({ gpus }) =>
        rows.length === 0 ? (
          <Empty>No job holds any of its {gpus.length} GPUs.</Empty>
        ) : (
          <>
            <DataTable label="Jobs on the node" rows={rows} columns={COLUMNS} keyOf={(row) => row.id} height={240} testId="node-job-table" />
            {unknown > 0 && (
              <p className="muted">
                More is not told of {unknown} of {rows.length}: they have just ended, or are not yours to read.
              </p>
            )}
          </>
        )
      }
    </Panel>
  );
}
