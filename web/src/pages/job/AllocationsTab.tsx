// What the job had, attempt by attempt: why, on which nodes, what was predicted of it and what came.

import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { serverNow } from "../../lib/clock";
import { count, duration, signedPercent, si } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { NodeLink, PlanLink } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import type { TabProps } from "./JobPage";
import { type AllocationRecord, hasEnded, useAllocations, useSeries } from "./asks";
import { realised, seconds, standstill } from "./shape";
import { configurationOf } from "./words";

interface Row {
  attempt: number;
  of: AllocationRecord;
  /** The one before it. */
  before: AllocationRecord | undefined;
  /** Its end, or the moment that is shown; in seconds since 1970. */
  until: number;
  /** Mean of what was measured under it. */
  came: { goodput: number; points: number } | undefined;
}

const NODES_SHOWN = 1;

export default function AllocationsTab({ job, at }: TabProps) {
  const allocations = useAllocations(job, at);
  const series = useSeries(job, "all", at);
  const means = useMemo(() => realised(series.data ?? []), [series.data]);
  return (
    <Panel
      title="Allocations"
      id="job-allocations"
      note={allocations.data && `all ${count(allocations.data.length)}, the newest first`}
      asked={allocations}
      everySeconds={hasEnded(job.state) || at ? Number.POSITIVE_INFINITY : 30}
      height={240}
      tools={<CopyAs command={`headway describe ${job.id}`} path={`/api/v1/jobs/${job.id}/allocations`} />}
    >
      {(items) =>
        items.length === 0 ? (
          <Empty>
            It has had no GPUs {at ? "by then" : "yet"}. <Link to="/queue" search={{ job: job.id }}>Why it waits</Link>
          </Empty>
        ) : (
          <DataTable
            label={`Allocations of ${job.name}`}
            rows={rowsOf(items, means, at ? seconds(at) : serverNow() / 1_000)}
            columns={COLUMNS}
            keyOf={(row) => String(row.of.generation)}
            over={(row) => row.of.ended_at != null}
            testId="allocations"
          />
        )
      }
    </Panel>
  );
}

function rowsOf(items: readonly AllocationRecord[], means: ReturnType<typeof realised>, now: number): Row[] {
  const rows = items.map((of, index) => {
    const until = of.ended_at ? seconds(of.ended_at) : now;
    return { attempt: index + 1, of, before: items[index - 1], until, came: means.get(of.generation) };
  });
  return rows.reverse();
}

const COLUMNS: Column<Row>[] = [
  {
    id: "attempt",
    header: "#",
    width: "44px",
    number: true,
    hint: "its output stands in the logs",
    cell: ({ attempt, of }) => (
      <Link to="." search={(before) => ({ ...before, tab: "logs" as const, attempt: String(attempt) })} title={`generation ${of.generation}: logs`}>
        {attempt}
      </Link>
    ),
  },
  { id: "since", header: "since", width: "128px", cell: ({ of }) => <When at={of.granted_at} /> },
  {
    id: "lasted",
    header: "for",
    width: "84px",
    number: true,
    cell: ({ of, until }) => `${duration(until - seconds(of.granted_at))}${of.ended_at ? "" : " …"}`,
  },
  {
    id: "gpus",
    header: "GPUs",
    width: "80px",
    number: true,
    cell: ({ of, before }) => (before && before.gpus !== of.gpus ? `${count(before.gpus)} → ${count(of.gpus)}` : count(of.gpus)),
  },
  {
    id: "configuration",
    header: "layout and batch",
    width: "170px",
    cell: ({ of }) => (
      <span className="mono" title={of.revision > 0 ? `the newest of ${of.revision + 1} while it ran` : undefined}>
        {configurationOf(of.configuration) || "the script's"}
      </span>
    ),
  },
  {
    id: "nodes",
    header: "nodes",
    width: "170px",
    from: "tablet",
    cell: ({ of }) => (
      <span className="job-nodes">
        {of.slices.slice(0, NODES_SHOWN).map((slice) => (
          <NodeLink key={slice.node_id} node={slice.node_id} name={slice.node_name ?? null} />
        ))}
        {of.slices.length > NODES_SHOWN && (
          <span className="muted" title={of.slices.map((slice) => slice.node_name ?? slice.node_id).join(", ")}>
            +{of.slices.length - NODES_SHOWN}
          </span>
        )}
      </span>
    ),
  },
  {
    id: "predicted",
    header: "predicted",
    width: "84px",
    number: true,
    from: "tablet",
    hint: "goodput in reference tokens/s, by the plan",
    cell: ({ of }) => (of.predicted_goodput_tokens_per_second > 0 ? si(of.predicted_goodput_tokens_per_second) : "–"),
  },
  {
    id: "came",
    header: "came",
    width: "112px",
    number: true,
    hint: "the mean of what was measured, and how far that is from what was predicted",
    cell: ({ of, came }) => <Came predicted={of.predicted_goodput_tokens_per_second} came={came} />,
  },
  {
    id: "standstill",
    header: "standstill",
    width: "88px",
    number: true,
    from: "desktop",
    hint: "from the end of the attempt before to the first step of this one",
    cell: ({ of, before }) => {
      const stood = standstill(before, of);
      return stood ? <span title={`${duration(stood.waiting)} of it waiting for GPUs`}>{duration(stood.seconds)}</span> : "–";
    },
  },
  {
    id: "start",
    header: "start",
    width: "64px",
    number: true,
    from: "desktop",
    hint: "from the grant to the first step",
    cell: ({ of }) => (of.training_at ? duration(seconds(of.training_at) - seconds(of.granted_at)) : "–"),
  },
  {
    id: "from",
    header: "from step",
    width: "80px",
    number: true,
    from: "desktop",
    hint: "of the checkpoint that it began from",
    cell: ({ of }) => (of.resumed_from_step == null ? "start" : count(of.resumed_from_step)),
  },
  { id: "plan", header: "plan", width: "84px", cell: ({ of }) => (of.plan_id ? <PlanLink id={of.plan_id} /> : "–") },
  { id: "cause", header: "why", cell: ({ of }) => <span title={of.cause}>{of.cause}</span> },
];

function Came({ predicted, came }: { predicted: number; came: Row["came"] }) {
  if (!came) return "–";
  const off = predicted > 0 ? came.goodput / predicted - 1 : undefined;
  return (
    <span title={`mean of ${count(came.points)} measurements`}>
      {si(came.goodput)}
      {off !== undefined && <span className="muted"> {signedPercent(off)}</span>}
    </span>
  );
}
