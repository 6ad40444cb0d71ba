// How far the model is off for each job that trains now: what its plan expected beside what was measured.

import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { type Guide, Scatter } from "../../chart/Scatter";
import { colourOf } from "../../lib/colour";
import { count, percent, si, signedPercent } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink } from "../../parts/Name";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { FIGURES_SECONDS, type Goodput } from "./asked";
import { type Foretold, foretold, meanErrors } from "./jobs";

/** Beyond this a job is looked at (as the server's attention does). */
const FAR = 0.2;

const GUIDES: Guide[] = [
  { name: "as predicted", y: (x) => x },
  { name: "20 % more", y: (x) => x * (1 + FAR), dashed: true },
  { name: "20 % less", y: (x) => x * (1 - FAR), dashed: true },
];

const COLUMNS: Column<Foretold>[] = [
  { id: "name", header: "Job", width: "40%", cell: ({ job }) => <JobLink id={job.job_id} name={job.job_name} /> },
  { id: "gpus", header: "GPUs", number: true, width: "60px", cell: ({ job }) => count(job.gpus) },
  { id: "predicted", header: "Predicted", number: true, from: "tablet", cell: (one) => si(one.predicted), hint: "reference tokens per second, by the plan" },
  { id: "measured", header: "Measured", number: true, cell: (one) => si(one.measured), hint: "reference tokens per second" },
  {
    id: "error",
    header: "Off by",
    number: true,
    cell: ({ error }) => (
      <span className={Math.abs(error) > FAR ? "warn" : undefined}>
        {Math.abs(error) > FAR && <span aria-hidden>▲ </span>}
        {signedPercent(error)}
      </span>
    ),
    hint: "above 0 more came than was predicted",
  },
];

export function Errors({ split }: { split: Asked<Goodput> }) {
  const jobs = useMemo(() => split.data && foretold(split.data), [split.data]);
  return (
    <Panel
      title="Predicted against measured"
      note={jobs && split.data && `${count(jobs.length)} of ${count(split.data.jobs.length)} jobs that hold GPUs`}
      id="errors"
      className="span-6"
      asked={{ ...split, data: jobs }}
      everySeconds={FIGURES_SECONDS}
      height={330}
    >
      {(data) =>
        data.length > 0 ? (
          <Drawn jobs={data} />
        ) : (
          <Empty>No job was measured yet whose goodput was predicted. The first figures come some steps after it has started.</Empty>
        )
      }
    </Panel>
  );
}

function Drawn({ jobs }: { jobs: Foretold[] }) {
  const navigate = useNavigate();
  const dots = useMemo(
    () =>
      jobs.map(({ job, predicted, measured, error }) => ({
        key: job.job_id,
        x: predicted,
        y: measured,
        size: job.gpus,
        colour: colourOf(job.job_id),
        told: `${job.job_name}: ${si(predicted)} predicted, ${si(measured)} measured (${signedPercent(error)}), ${count(job.gpus)} GPUs`,
      })),
    [jobs],
  );
  const means = meanErrors(jobs);
  const far = jobs.filter(({ error }) => Math.abs(error) > FAR).length;
  return (
    <>
      {means && (
        <p data-testid="mean-error">
          Off by <strong>{percent(means.byJob)}</strong> in the mean of jobs, {percent(means.byGpus)} by the GPUs that they hold;{" "}
          <span className={far > 0 ? "warn" : undefined}>
            {count(far)} of {count(jobs.length)} by more than {percent(FAR)}
          </span>
          .
        </p>
      )}
      <Scatter
        label={`${jobs.length} jobs, predicted against measured goodput: ${far} are off by more than ${percent(FAR)}.`}
        dots={dots}
        xName="predicted, reference tokens/s"
        yName="measured"
        formatX={si}
        formatY={si}
        guides={GUIDES}
        square
        onOpen={(id) => void navigate({ to: "/jobs/$id", params: { id } })}
        table={<DataTable label="Jobs by how far the model is off" rows={jobs} columns={COLUMNS} keyOf={({ job }) => job.job_id} height={300} />}
        testId="scatter-errors"
      />
    </>
  );
}
