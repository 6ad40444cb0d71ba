// Where the GPU-time of a window went: in all, over time, and for whom.

import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { type Layer, Stack } from "../../chart/Stack";
import { amount, count, fixed, gpuHours, percent } from "../../lib/format";
import { Bars } from "../../parts/Bars";
import { CopyAs } from "../../parts/CopyAs";
import { Empty, Panel } from "../../parts/Panel";
import { BYS, type By, type Span, type Usage, WINDOWS, type WindowName, csvOf, useUsage } from "./asked";
import { CAUSES } from "./causes";
import { Named, ReportTable, type ReportColumn } from "./ReportTable";
import { type Line, capacityOf, courseOf, pivot, sumOf } from "./shape";

export function UsageTab({ window, span, by }: { window: WindowName; span: Span; by: By }) {
  const { step } = WINDOWS[window];
  const course = useUsage(span, "cause", step);
  return (
    <div className="grid">
      <Panel title="What it went into" id="usage-causes" className="span-6" asked={course} everySeconds={Number.POSITIVE_INFINITY} height={220} tools={<Csv span={span} by="cause" />}>
        {(usage) => <Causes usage={usage} />}
      </Panel>
      <Panel
        title="Over time"
        note={`GPUs, means of ${step}`}
        id="usage-course"
        className="span-6"
        asked={course}
        everySeconds={Number.POSITIVE_INFINITY}
        height={220}
        tools={<Csv span={span} by="cause" step={step} />}
      >
        {(usage) => <Course usage={usage} />}
      </Panel>
      <Whom span={span} by={by} />
    </div>
  );
}

function Csv({ span, by, step }: { span: Span; by: string; step?: string }) {
  return (
    <a className="button reports-controls" href={csvOf(span, by, step)} download={`usage-${by.replaceAll(",", "-")}.csv`}>
      CSV
    </a>
  );
}

function Causes({ usage }: { usage: Usage }) {
  const capacity = capacityOf(usage);
  const total = usage.total_gpu_hours;
  const useful = sumOf(usage.items, (row) => row.cause === "useful");
  if (total === 0) return <Empty>No GPU was granted to a job in this window. Take a longer one, or submit a job.</Empty>;
  const known = CAUSES.filter(({ cause }) => usage.items.some((row) => row.cause === cause));
  return (
    <div className="stack">
      <p>
        <strong>{gpuHours(total)}</strong> were granted to jobs
        {capacity && capacity.known > 0 && (
          <>
            , of {gpuHours(capacity.gpuHours)} of healthy GPUs
            {capacity.known < capacity.steps
              ? ` (known for ${count(capacity.known)} of ${count(capacity.steps)} steps)`
              : ` (${percent(total / capacity.gpuHours)})`}
          </>
        )}
        ; <strong>{percent(useful / total)}</strong> of what was granted was useful.
      </p>
      <Bars
        label="GPU-hours by cause"
        of={total}
        format={gpuHours}
        bars={known.map(({ cause, words, colour }) => {
          const hours = sumOf(usage.items, (row) => row.cause === cause);
          return { key: cause, label: cause, value: hours, colour, note: `${percent(hours / total)} · ${words}` };
        })}
      />
    </div>
  );
}

const gpus = (value: number) => fixed(value, value < 10 ? 1 : 0);

function Course({ usage }: { usage: Usage }) {
  const course = useMemo(() => courseOf(usage), [usage]);
  const layers = useMemo(
    () =>
      CAUSES.flatMap(({ cause, colour }): Layer[] => {
        const values = course.byCause.get(cause);
        return values ? [{ key: cause, name: cause, colour, values }] : [];
      }),
    [course],
  );
  const lines = useMemo(() => (course.healthy.some((value) => value !== null) ? [{ name: "healthy GPUs", colour: "var(--text)", values: course.healthy }] : []), [course]);
  if (course.times.length === 0) return <Empty>Nothing was held and nothing was counted in this window.</Empty>;
  return (
    <Stack
      label="GPUs by what they were used for"
      times={course.times}
      stepSeconds={usage.step_seconds ?? 0}
      layers={layers}
      lines={lines}
      height={210}
      format={gpus}
      testId="usage-chart"
    />
  );
}

function Whom({ span, by }: { span: Span; by: By }) {
  const navigate = useNavigate({ from: "/reports" });
  const groupBy = by === "cause" ? "cause" : `${by},cause`;
  const usage = useUsage(span, groupBy);
  // How many jobs have a part in a line is told for the line alone: one job has a part in several causes.
  const jobs = useUsage(span, by);
  return (
    <Panel
      title="For whom and why"
      id="usage-table"
      className="span-12"
      note="GPU-hours, the most first"
      asked={usage}
      everySeconds={Number.POSITIVE_INFINITY}
      height={280}
      tools={
        <>
          <label className="row reports-controls">
            by
            <select className="field" value={by} onChange={(event) => void navigate({ search: (before) => ({ ...before, by: event.target.value }), replace: true, resetScroll: false })}>
              {BYS.map((one) => (
                <option key={one.by} value={one.by}>
                  {one.name}
                </option>
              ))}
            </select>
          </label>
          <span className="reports-controls">
            <CopyAs command={`headway usage report --by ${groupBy} --from ${span.from} --to ${span.to}`} path={csvOf(span, groupBy)} />
          </span>
          <Csv span={span} by={groupBy} />
        </>
      }
    >
      {(told) => <Matrix usage={told} jobs={jobs.data?.group_by[0] === by ? jobs.data : undefined} by={by} />}
    </Panel>
  );
}

function Matrix({ usage, jobs, by }: { usage: Usage; jobs: Usage | undefined; by: By }) {
  // While another grouping is asked for the table shows the one that is there.
  const shown = (usage.group_by.find((one) => one !== "cause") ?? "cause") as By;
  const rows = pivot(usage.items, (row) => row[shown]);
  if (rows.length === 0) return <Empty>No GPU was granted to a job in this window.</Empty>;
  const total = usage.total_gpu_hours;
  const jobsOf = new Map(jobs?.items.map((row) => [row[by], row.jobs]));
  const hours = (value: number) => (value > 0 ? amount(value) : "–");
  const columns: ReportColumn<Line>[] = [
    { id: "name", header: BYS.find((one) => one.by === shown)?.name ?? shown, cell: (row) => <Named by={shown} value={row.name} />, sum: "in all" },
    { id: "jobs", header: "jobs", number: true, hint: "that have a part in it", cell: (row) => count(shown === by ? jobsOf.get(row.name) : undefined) },
    { id: "total", header: "GPU-h", number: true, cell: (row) => hours(row.total), sum: <strong>{hours(total)}</strong> },
    { id: "share", header: "share", number: true, hint: "of all that was granted", cell: (row) => percent(row.total / total) },
    ...(shown === "cause"
      ? []
      : CAUSES.map(({ cause, words }): ReportColumn<Line> => ({
          id: cause,
          header: cause,
          hint: words,
          number: true,
          cell: (row) => hours(row.byCause.get(cause) ?? 0),
          sum: hours(sumOf(usage.items, (row) => row.cause === cause)),
        }))),
    ...(shown === "cause"
      ? []
      : [{ id: "useful-share", header: "useful share", number: true, hint: "of its own", cell: (row: Line) => percent((row.byCause.get("useful") ?? 0) / row.total) }]),
  ];
  return <ReportTable label={`GPU-hours by ${shown}`} testId="usage-matrix" rows={rows} columns={columns} keyOf={(row) => row.name} />;
}
