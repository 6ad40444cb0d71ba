// What the job has saved: from any of these it can go on.

import { count, duration, si } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { Middle } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";
import { When } from "../../parts/When";
import type { TabProps } from "./JobPage";
import { type Checkpoint, hasEnded, useCheckpoints } from "./asks";

export default function CheckpointsTab({ job, at }: TabProps) {
  const checkpoints = useCheckpoints(job, at);
  return (
    <Panel
      title="Checkpoints"
      id="job-checkpoints"
      note={checkpoints.data && `all ${count(checkpoints.data.length)} that were committed, the newest first`}
      asked={checkpoints}
      everySeconds={hasEnded(job.state) || at ? Number.POSITIVE_INFINITY : 10}
      height={240}
      tools={<CopyAs command={`headway job checkpoints ${job.id}`} path={`/api/v1/jobs/${job.id}/checkpoints`} />}
    >
      {(items) =>
        items.length === 0 ? (
          <Empty>
            Nothing was saved {at ? "by then" : "yet"}: what it has computed is lost if it stops. A running job saves when it is told to (“Checkpoint now”), and
            every so often (<code>training.checkpoint.every</code>).
          </Empty>
        ) : (
          <DataTable
            label={`Checkpoints of ${job.name}`}
            rows={items}
            columns={COLUMNS}
            keyOf={(one) => `${one.generation}-${one.step}`}
            testId="checkpoints"
          />
        )
      }
    </Panel>
  );
}

const COLUMNS: Column<Checkpoint>[] = [
  { id: "step", header: "step", width: "96px", number: true, cell: (one) => count(one.step) },
  { id: "at", header: "committed", width: "132px", cell: (one) => <When at={one.committed_at} /> },
  { id: "age", header: "age", width: "96px", number: true, from: "tablet", cell: (one) => <Ago at={one.committed_at} suffix="" /> },
  { id: "took", header: "took", width: "84px", number: true, hint: "to write and commit", cell: (one) => duration(one.duration_seconds) },
  { id: "progress", header: "progress", width: "104px", number: true, hint: "reference tokens reached", cell: (one) => si(one.progress_tokens) },
  { id: "samples", header: "sequences", width: "104px", number: true, from: "tablet", hint: "seen by then", cell: (one) => count(one.samples_seen) },
  { id: "generation", header: "generation", width: "96px", number: true, from: "tablet", cell: (one) => count(one.generation) },
  {
    id: "manifest",
    header: "manifest",
    width: "120px",
    from: "desktop",
    hint: "SHA-256 of what it is made of",
    cell: (one) => <code title={one.manifest_sha256}>{one.manifest_sha256.slice(0, 12)}</code>,
  },
  { id: "path", header: "path", width: "260px", cell: (one) => <Middle text={one.path} /> },
];
