// What projects were given beside what their weights entitle them to, who waits longest, and whose GPUs went to whom.

import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import type { Job } from "../../api/client";
import { useCan } from "../../api/session";
import { count, fixed, gpuHours, percent, times } from "../../lib/format";
import { Empty, Panel } from "../../parts/Panel";
import { JobLink } from "../../parts/Name";
import { Ago } from "../../parts/Time";
import { type QueueTotals, type Span, type Usage, type UsageRow, WAITERS, csvOf, useShares, useUsage, useWaiters } from "./asked";
import { Named, ReportTable, type ReportColumn } from "./ReportTable";
import { type FairShare, fairness, jain, sumOf } from "./shape";

export function FairnessTab({ span, end, past }: { span: Span; end: number; past: boolean }) {
  const sees = useCan("operator");
  return (
    <div className="grid">
      {past && <p className="span-12 muted">What was given is of the window. Rules, weights, what projects hold and who waits are of the present: they are not kept.</p>}
      {!sees && <p className="span-12 muted">GPU-time of private projects that you are no member of is left out.</p>}
      <Shares span={span} end={end} />
      <Displaced span={span} />
      <Waiters end={end} />
    </div>
  );
}

function Shares({ span, end }: { span: Span; end: number }) {
  const shares = useShares(end);
  const usage = useUsage(span, "project,cause");
  const asked = { ...shares, error: shares.error ?? usage.error, data: shares.data && usage.data && { ...shares.data, usage: usage.data } };
  return (
    <Panel
      title="Given, against entitled"
      id="fairness-projects"
      className="span-12"
      asked={asked}
      everySeconds={Number.POSITIVE_INFINITY}
      height={260}
      tools={
        <a className="button reports-controls" href={csvOf(span, "project,cause")} download="usage-project-cause.csv">
          CSV
        </a>
      }
    >
      {({ projects, waiting, usage: told }) => (
        <Projects shares={fairness(projects, told.items)} usage={told} waiting={waiting} hours={(Date.parse(span.to) - Date.parse(span.from)) / 3_600_000} />
      )}
    </Panel>
  );
}

function Projects({ shares, usage, waiting, hours }: { shares: FairShare[]; usage: Usage; waiting: QueueTotals; hours: number }) {
  const named = new Set(shares.map((one) => one.project.name));
  const ruleless = usage.items.filter((row) => row.project != null && !named.has(row.project));
  const without = sumOf(ruleless, () => true);
  const index = jain(shares);
  if (shares.length === 0) {
    return (
      <Empty>
        No project has rules, so none is entitled to a share: whoever comes is served. Give some under{" "}
        <Link to="/settings" search={{ tab: "projects" }}>
          Settings, projects
        </Link>
        .
      </Empty>
    );
  }
  const columns: ReportColumn<FairShare>[] = [
    {
      id: "name",
      header: "project",
      cell: ({ project, depth }) => (
        <span style={{ paddingLeft: depth * 16 }}>
          <Named by="project" value={project.name} />
        </span>
      ),
    },
    { id: "weight", header: "weight", number: true, cell: ({ project }) => fixed(project.weight, Number.isInteger(project.weight) ? 0 : 2) },
    { id: "entitled", header: "entitled", number: true, hint: "its weight over those of its siblings", cell: (one) => percent(one.entitled) },
    { id: "share", header: "given", number: true, hint: "its share of what it and its siblings were granted in the window", cell: (one) => percent(one.share) },
    { id: "ratio", header: "given ÷ entitled", number: true, cell: (one) => <Ratio of={one} /> },
    { id: "delivered", header: "granted", number: true, hint: "in the window, sub-projects included", cell: (one) => gpuHours(one.delivered) },
    { id: "useful", header: "useful", number: true, hint: "of what was granted", cell: (one) => gpuHours(one.useful) },
    { id: "mean", header: "GPUs on average", number: true, hint: "over the window", cell: (one) => fixed(one.delivered / hours, 1) },
    { id: "floor", header: "sure of", number: true, hint: "GPUs its jobs are sure of while they ask for them (floor)", cell: ({ project }) => count(project.floor_gpus) },
    { id: "quota", header: "of right", number: true, hint: "GPUs it may use of right (quota), and may borrow beyond it", cell: ({ project }) => quotaOf(project) },
    { id: "holds", header: "holds now", number: true, cell: ({ project }) => `${count(project.gpus)} GPUs` },
    { id: "waits", header: "waits now", number: true, hint: "its own jobs, and the fewest GPUs that they run on together", cell: ({ project }) => <Waits of={waiting} name={project.name} /> },
    { id: "used", header: "used of late", number: true, hint: "GPU-time that halves with every half-life, and its share among siblings: what the planner holds against what it is entitled to", cell: (one) => `${gpuHours(one.project.decayed_gpu_hours)}, ${percent(one.used)}` },
    { id: "displaced", header: "displaced", number: true, hint: "GPU-hours lost where its GPUs went to others", cell: (one) => gpuHours(one.displaced) },
  ];
  return (
    <div className="stack">
      <ReportTable label="Projects with rules" testId="fairness-table" rows={shares} columns={columns} keyOf={(one) => one.project.name} />
      <p className="muted">
        {index !== undefined && <>Jain’s index over the outermost projects: {fixed(index)} (1: each was given what it is entitled to). </>}A project that asked for less was given less,
        which is not unfair: look at what waits. Weights, floors and quotas are those of the present.
      </p>
      {without > 0 && (
        <p className="muted">
          {gpuHours(without)} of {gpuHours(usage.total_gpu_hours)} went to jobs of {count(new Set(ruleless.map((row) => row.project)).size)} projects without rules, which take no part in
          shares.
        </p>
      )}
    </div>
  );
}

/** As much as it is entitled to is 1. */
function Ratio({ of: { share, entitled } }: { of: FairShare }) {
  if (share === null || entitled === 0) return <span className="muted">–</span>;
  const ratio = share / entitled;
  return (
    <span className="reports-ratio" title={`${percent(share)} given, ${percent(entitled)} entitled`}>
      <span className="reports-meter" aria-hidden>
        <i style={{ width: `${Math.min(100, ratio * 50)}%` }} />
      </span>
      {times(ratio)}
    </span>
  );
}

function quotaOf({ quota_gpus: quota, borrow_gpus: borrow }: FairShare["project"]): string {
  if (quota == null) return "no limit";
  return borrow > 0 ? `${count(quota)} + ${count(borrow)}` : count(quota);
}

function Waits({ of, name }: { of: QueueTotals; name: string }) {
  const share = of.by_project[name];
  if (!share) return <span className="muted">–</span>;
  return (
    <Link to="/queue" search={{ project: name }}>
      {count(share.jobs)} jobs, {count(share.gpus)} GPUs
    </Link>
  );
}

function Displaced({ span }: { span: Span }) {
  const usage = useUsage(span, "user,displaced_by");
  const columns: ReportColumn<UsageRow>[] = [
    { id: "user", header: "who lost", cell: (row) => <Named by="user" value={row.user ?? "–"} /> },
    { id: "taker", header: "whose job took most", cell: (row) => <Named by="user" value={row.displaced_by ?? "–"} /> },
    { id: "hours", header: "GPU-h", number: true, cell: (row) => gpuHours(row.gpu_hours) },
    { id: "jobs", header: "jobs", number: true, cell: (row) => count(row.jobs) },
  ];
  return (
    <Panel
      title="Whose GPUs went to whom"
      note="saving and rework that it cost"
      id="fairness-displaced"
      className="span-6"
      asked={usage}
      everySeconds={Number.POSITIVE_INFINITY}
    >
      {({ items, total_gpu_hours: total }) => {
        const rows = items.filter((row) => row.displaced_by != null && row.displaced_by !== "-");
        if (rows.length === 0) return <Empty>Nobody lost GPU-time to others in this window.</Empty>;
        return (
          <div className="stack">
            <p>
              {gpuHours(sumOf(rows, () => true))} of {gpuHours(total)} that were granted.
            </p>
            <ReportTable label="GPU-time lost to others" rows={rows} columns={columns} keyOf={(row) => `${row.user}/${row.displaced_by}`} />
          </div>
        );
      }}
    </Panel>
  );
}

function Waiters({ end }: { end: number }) {
  const waiters = useWaiters(end);
  const columns = useMemo<ReportColumn<Job>[]>(
    () => [
      { id: "job", header: "job", cell: (job) => <JobLink id={job.id} name={job.name} /> },
      { id: "project", header: "project", cell: (job) => <Named by="project" value={job.project} /> },
      { id: "submitted", header: "submitted", number: true, cell: (job) => <Ago at={job.submitted_at} /> },
      { id: "waits", header: "waits since", number: true, hint: "it may have run before", cell: (job) => <Ago at={job.state_since} /> },
      { id: "gpus", header: "GPUs", number: true, cell: (job) => (job.gpus_min === job.gpus_max ? count(job.gpus_min) : `${count(job.gpus_min)}–${count(job.gpus_max)}`) },
    ],
    [],
  );
  return (
    <Panel
      title="Submitted longest ago, and waiting"
      note={waiters.data && `${count(waiters.data.items.length)} of ${count(waiters.data.totals?.jobs)} that wait`}
      id="fairness-waits"
      className="span-6"
      asked={waiters}
      everySeconds={Number.POSITIVE_INFINITY}
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>Nothing is waiting.</Empty>
        ) : (
          <div className="stack">
            <ReportTable label={`The ${WAITERS} jobs that were submitted longest ago and wait`} rows={items} columns={columns} keyOf={(job) => job.id} />
            <p className="muted">
              Why each waits stands in the <Link to="/queue">queue</Link>.
            </p>
          </div>
        )
      }
    </Panel>
  );
}
