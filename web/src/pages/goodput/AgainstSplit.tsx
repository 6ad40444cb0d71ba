// Each job that trains: how much faster than on a static share, and how much each of its tokens is worth. The product is its gain.

import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { type Guide, Scatter } from "../../chart/Scatter";
import { colourOf } from "../../lib/colour";
import { count, times } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink } from "../../parts/Name";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { FIGURES_SECONDS, type Goodput } from "./asked";
import { type Against, type Compared, compared } from "./jobs";

const GUIDES: Guide[] = [{ name: "as much as on a static share", y: (x) => 1 / x, dashed: true }];
const AROUND = { x: 1, y: 1 };
const CORNERS: [string, string, string, string] = [
  ...(["slower, tokens worth more", "faster, tokens worth more"] as const),
  ...(["slower, tokens worth less", "faster, tokens worth less"] as const),
];

const COLUMNS: Column<Against>[] = [
  { id: "name", header: "Job", width: "32%", cell: ({ job }) => <JobLink id={job.job_id} name={job.job_name} /> },
  { id: "gpus", header: "GPUs", number: true, width: "56px", cell: ({ job }) => count(job.gpus) },
  { id: "split", header: "Split", number: true, width: "56px", from: "tablet", cell: (one) => count(one.splitGpus), hint: "GPUs of its static share" },
  { id: "faster", header: "Speed", number: true, cell: (one) => times(one.faster), hint: "raw tokens per second over those of the static share" },
  { id: "efficiency", header: "Per token", number: true, cell: (one) => times(one.efficiency), hint: "progress per token over that at the reference batch" },
  { id: "gain", header: "Gain", number: true, cell: (one) => times(one.gain), hint: "goodput over that of the static share" },
];

export function AgainstSplit({ split }: { split: Asked<Goodput> }) {
  const found = useMemo(() => split.data && compared(split.data), [split.data]);
  return (
    <Panel
      title="Jobs: speed and worth per token"
      note={found && split.data && `${count(found.jobs.length)} of ${count(split.data.jobs.length)} that hold GPUs`}
      id="against-split"
      className="span-6"
      asked={{ ...split, data: found }}
      everySeconds={FIGURES_SECONDS}
      height={330}
    >
      {(data) => (
        <>
          {data.jobs.length > 0 ? (
            <Drawn jobs={data.jobs} />
          ) : (
            <Empty>No job can be held against a static split yet. That needs one whose training is modelled and that has reported its speed.</Empty>
          )}
          <Missing data={data} />
        </>
      )}
    </Panel>
  );
}

function Drawn({ jobs }: { jobs: Against[] }) {
  const navigate = useNavigate();
  const dots = useMemo(
    () =>
      jobs.map(({ job, faster, efficiency, gain }) => ({
        key: job.job_id,
        x: faster,
        y: efficiency,
        size: job.gpus,
        colour: colourOf(job.job_id),
        told: `${job.job_name}: ${times(faster)} as fast, ${times(efficiency)} per token, ${times(gain)} the goodput, ${count(job.gpus)} GPUs`,
      })),
    [jobs],
  );
  const better = jobs.filter(({ gain }) => gain >= 1).length;
  return (
    <Scatter
      label={`${jobs.length} jobs by speed and by progress per token: ${better} do at least as well as on a static share.`}
      dots={dots}
      xName="speed over a static share"
      yName="progress per token"
      formatX={times}
      formatY={times}
      guides={GUIDES}
      around={AROUND}
      corners={CORNERS}
      onOpen={(id) => void navigate({ to: "/jobs/$id", params: { id } })}
      table={<DataTable label="Jobs by speed and progress per token" rows={jobs} columns={COLUMNS} keyOf={({ job }) => job.job_id} height={300} />}
      testId="scatter-split"
    />
  );
}

/** Who is not drawn, and why. */
function Missing({ data }: { data: Compared }) {
  const why = [
    [data.unmeasured, "not measured yet"],
    [data.withoutSplit, "without a model, or beyond the 200 jobs that a split is worked out for"],
    [data.without, "would wait on a static split"],
  ] as const;
  const told = why.filter(([jobs]) => jobs > 0).map(([jobs, words]) => `${count(jobs)} ${words}`);
  return told.length > 0 ? <p className="muted">Not drawn: {told.join("; ")}.</p> : null;
}
