// The jobs that hold the most GPUs, as the server sorts them; of a past moment those that held some.

import { Link } from "@tanstack/react-router";
import { memo, useMemo } from "react";
import type { Job, PastOverview } from "../../api/client";
import { useJobList } from "../../api/queries";
import type { components } from "../../api/schema";
import { Spark } from "../../chart/Spark";
import { onSteps, stepsSince } from "../../chart/grid";
import { count, duration, layoutOf, percent, si } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, Middle } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { State } from "../../parts/State";
import { Ago } from "../../parts/Time";
import { WINDOWS, type WindowName } from "../../parts/WindowPicker";
import { type Sparks, usePastHolders, useSparks } from "./asked";

const ROWS = 12;
/** States in which a job holds GPUs. */
const HOLDING = "starting,running,stopping";

export const Holders = memo(function Holders({ window }: { window: WindowName }) {
  const jobs = useJobList({ state: HOLDING, sort: "gpus", limit: ROWS, totals: true });
  const ids = useMemo(() => (jobs.data?.items ?? []).map((job) => job.id), [jobs.data]);
  const sparks = useSparks(ids, window);
  const columns = useMemo(() => columnsOf(sparks.data, window), [sparks.data, window]);
  const total = jobs.data?.totals?.jobs;
  return (
    <Panel
      title="Jobs that hold the most GPUs"
      note={jobs.data && total !== undefined && `${count(jobs.data.items.length)} of ${count(total)} that hold some`}
      id="holders"
      className="span-8"
      asked={jobs}
      everySeconds={15}
      height={ROWS * 28 + 28}
      tools={
        <>
          <CopyAs
            command={`headway ps --state starting --state running --state stopping --sort gpus --limit ${ROWS}`}
            path={`/api/v1/jobs?state=${HOLDING}&sort=gpus&limit=${ROWS}`}
          />
          <Link to="/jobs" search={{ state: "live", sort: "gpus" }}>
            all jobs
          </Link>
        </>
      }
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>
            No job holds GPUs. Submit one: <code>headway submit job.yaml</code>, or look at what <Link to="/queue">waits</Link>.
          </Empty>
        ) : (
          <DataTable label="Jobs that hold the most GPUs" testId="holders" rows={items} columns={columns} keyOf={(job) => job.id} height={ROWS * 28 + 30} />
        )
      }
    </Panel>
  );
});

function Layout({ of }: { of: Job }) {
  const layout = layoutOf(of.layout, of.execution) || "–";
  return <span title={layout}>{layout}</span>;
}

function columnsOf(sparks: Sparks | undefined, window: WindowName): Column<Job>[] {
  // All rows have one axis, which begins where the first of them does.
  const firsts = [...(sparks?.byJob.values() ?? [])].flatMap(({ points }) => points.slice(0, 1));
  firsts.sort((one, other) => one.at.localeCompare(other.at));
  const times = sparks ? stepsSince(sparks.from, sparks.to, sparks.stepSeconds, firsts) : [];
  const line = (job: Job) => {
    const points = sparks?.byJob.get(job.id)?.points;
    if (!points || !sparks) return null;
    const values = onSteps(points, sparks.stepSeconds, times, (point) => point.goodput_tokens_per_second);
    return <Spark values={values} width={80} height={20} label={`goodput over the ${WINDOWS[window].words} before`} />;
  };
  return [
    { id: "name", header: "Job", cell: (job) => <JobLink id={job.id} name={job.name} /> },
    {
      id: "owner",
      header: "Owner",
      width: "90px",
      from: "tablet",
      cell: (job) => (
        <Link to="/jobs" search={{ user: job.owner }} className="named">
          <Middle text={job.owner} />
        </Link>
      ),
    },
    { id: "state", header: "State", width: "92px", cell: (job) => <State state={job.state} cause={job.state_cause ?? null} /> },
    {
      id: "gpus",
      header: "GPUs",
      number: true,
      width: "56px",
      cell: (job) => <span title={`${job.gpus_min} to ${job.gpus_max} are allowed`}>{count(job.gpus)}</span>,
    },
    { id: "layout", header: "Layout", width: "130px", from: "desktop", cell: (job) => <Layout of={job} /> },
    {
      ...{ id: "batch", header: "Batch", number: true, width: "60px", from: "desktop", hint: "global batch, in sequences" },
      cell: (job) => si(job.global_batch_sequences),
    },
    {
      ...{ id: "goodput", header: "Goodput", number: true, width: "74px", hint: "reference tokens per second, measured" },
      cell: (job) => si(job.goodput_tokens_per_second),
    },
    { id: "line", header: window, width: "96px", from: "tablet", cell: line, hint: `goodput over the ${WINDOWS[window].words} before` },
    {
      ...{ id: "eta", header: "Ends in", number: true, width: "76px", from: "tablet", hint: "predicted" },
      cell: (job) => <span title={`${percent(job.progress_fraction)} of its target is done`}>{duration(job.eta_seconds)}</span>,
    },
  ];
}

type PastJob = components["schemas"]["PastJob"];

const PAST_COLUMNS: Column<PastJob>[] = [
  { id: "name", header: "Job", width: "34%", cell: (job) => <JobLink id={job.id} name={job.name} /> },
  { id: "owner", header: "Owner", width: "18%", from: "tablet", cell: (job) => <Middle text={job.owner} /> },
  { id: "state", header: "State", width: "110px", cell: (job) => <State state={job.state} /> },
  { id: "since", header: "Since", width: "110px", from: "tablet", cell: (job) => <Ago at={job.state_since} /> },
  { id: "gpus", header: "GPUs", number: true, width: "60px", cell: (job) => count(job.gpus) },
  { id: "nodes", header: "Nodes", from: "desktop", cell: (job) => <span title={job.nodes.join(", ")}>{job.nodes.join(", ")}</span> },
];

export function PastHolders({ at, overview }: { at: string; overview: PastOverview | undefined }) {
  const jobs = usePastHolders(at, ROWS);
  const states = overview?.jobs_by_state ?? {};
  const total = HOLDING.split(",").reduce((sum, state) => sum + (states[state] ?? 0), 0);
  return (
    <Panel
      title="Jobs that held GPUs"
      note={jobs.data && overview && `${count(jobs.data.items.length)} of ${count(total)}, the newest first: of the past they are not sorted by size`}
      id="holders"
      className="span-12"
      asked={{ ...jobs, dataUpdatedAt: Number.POSITIVE_INFINITY }}
      height={ROWS * 28 + 28}
      tools={<Link to="/jobs">all jobs</Link>}
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>No job held GPUs at that moment.</Empty>
        ) : (
          <DataTable label="Jobs that held GPUs" testId="holders" rows={items} columns={PAST_COLUMNS} keyOf={(job) => job.id} height={ROWS * 28 + 30} />
        )
      }
    </Panel>
  );
}
