// The same as tables: each bar, prediction and reservation as a row.

import { useMemo } from "react";
import { count, duration } from "../../lib/format";
import { membersInWords } from "../../lib/reservation";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, NodeLink, PlanLink } from "../../parts/Name";
import { ReservationLink } from "../../parts/Reservation";
import { When } from "../../parts/When";
import type { Row } from "./rows";
import type { PlanMark, Reservation } from "./Strips";
import { mixture, predictedTold } from "./words";

interface Entry {
  key: string;
  row: Row;
  from: number | undefined;
  to: number | undefined;
  what: string;
  gpus: string;
  job?: { id: string; name: string | undefined } | undefined;
  cause: string | undefined;
}

const iso = (at: number) => new Date(at).toISOString();

interface Props {
  rows: readonly Row[];
  byNode: boolean;
  past: boolean;
  reservations: readonly Reservation[];
  plans: readonly PlanMark[];
}

export function Twin({ rows, byNode, past, reservations, plans }: Props) {
  const entries = useMemo(() => rows.flatMap((row) => entriesOf(row, past)), [rows, past]);
  const columns = useMemo(() => columnsOf(byNode), [byNode]);
  return (
    <div className="stack">
      <p className="muted">{count(entries.length)} rows of {count(rows.length)} lanes</p>
      <DataTable label={byNode ? "What nodes were doing" : "What jobs were doing"} testId="timeline-table" rows={entries} columns={columns} keyOf={(entry) => entry.key} />
      {reservations.length > 0 && (
        <DataTable label="Reservations" rows={reservations} columns={RESERVED} keyOf={(one) => one.id} height={240} testId="timeline-reservations" />
      )}
      {plans.length > 0 && <DataTable label="Plans that became the target" rows={plans} columns={PLANS} keyOf={(plan) => String(plan.event)} height={240} />}
    </div>
  );
}

function entriesOf(row: Row, past: boolean): Entry[] {
  const entry = (key: string, rest: Omit<Entry, "key" | "row">): Entry => ({ key: `${row.id}/${key}`, row, ...rest });
  return [
    ...row.bars.map((bar, index) =>
      entry(`bar${index}`, {
        from: bar.from,
        to: bar.to,
        what: bar.shares.length > 0 ? mixture(bar) : bar.state,
        gpus: bar.healthy === undefined ? [bar.gpus, bar.layout].filter(Boolean).join(" · ") || "–" : `${bar.healthy} of ${bar.gpus} healthy`,
        cause: bar.cause,
      }),
    ),
    ...row.held.map((held, index) =>
      entry(`held${index}`, {
        from: held.from,
        to: held.to,
        what: "held by",
        gpus: `${held.gpus} of ${row.slots}`,
        job: held.job ? { id: held.job, name: held.name } : undefined,
        cause: held.job ? undefined : "a job that is not yours to know of",
      }),
    ),
    ...row.faults.map((fault) => entry(`fault${fault.seq}`, { from: fault.at, to: undefined, what: "✕ fault", gpus: "–", cause: fault.message })),
    ...(["start", "end"] as const).flatMap((kind) => {
      const of = past ? undefined : row[kind];
      return of ? [entry(kind, { from: of.p50 ?? of.p10, to: undefined, what: `predicted ${kind}`, gpus: "–", cause: predictedTold(kind, of) })] : [];
    }),
  ];
}

function columnsOf(byNode: boolean): Column<Entry>[] {
  return [
    {
      id: "lane",
      header: byNode ? "Node" : "Job",
      width: "200px",
      cell: ({ row }) => (byNode ? <NodeLink node={row.id} name={row.name} /> : <JobLink id={row.id} name={row.name} />),
    },
    { id: "from", header: "From", width: "130px", cell: ({ from }) => (from === undefined ? "not known" : <When at={iso(from)} />) },
    { id: "to", header: "To", width: "130px", from: "tablet", cell: ({ to }) => (to === undefined ? "" : <When at={iso(to)} />) },
    {
      id: "lasting",
      header: "Lasting",
      width: "90px",
      number: true,
      from: "tablet",
      cell: ({ from, to }) => (from === undefined || to === undefined ? "" : duration((to - from) / 1_000)),
    },
    { id: "what", header: "What", width: "170px", cell: ({ what, job }) => (job ? <JobLink id={job.id} name={job.name} /> : <span title={what}>{what}</span>) },
    { id: "gpus", header: "GPUs", width: "150px", from: "tablet", cell: ({ gpus }) => gpus },
    { id: "cause", header: "Why", from: "tablet", cell: ({ cause }) => <span title={cause}>{cause}</span> },
  ];
}

const RESERVED: Column<Reservation>[] = [
  { id: "name", header: "Reservation", width: "160px", cell: (one) => <ReservationLink reservation={one} /> },
  { id: "from", header: "From", width: "130px", cell: (one) => <When at={one.from} /> },
  { id: "until", header: "Until", width: "130px", cell: (one) => <When at={one.until} /> },
  { id: "whom", header: "For", width: "180px", from: "tablet", cell: (one) => <span title={membersInWords(one)}>{membersInWords(one)}</span> },
  {
    id: "nodes",
    header: "Nodes",
    from: "tablet",
    cell: (one) => (
      <span className="timeline-nodes">
        {one.nodes.map((node) => (
          <NodeLink key={node} node={node} />
        ))}
      </span>
    ),
  },
];

const PLANS: Column<PlanMark>[] = [
  { id: "at", header: "Plan adopted", width: "130px", cell: (plan) => <When at={plan.at} /> },
  { id: "plan", header: "Plan", width: "110px", cell: (plan) => <PlanLink id={plan.id} /> },
  { id: "message", header: "In a sentence", cell: (plan) => <span title={plan.message}>{plan.message}</span> },
];
