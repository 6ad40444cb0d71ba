// The nodes as a table: what the map shows, for narrow windows, for sorting, and for who does not see the map.

import { useMemo } from "react";
import { count } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import type { ReservationsByNode } from "../../lib/reservation";
import { JobLink, Middle, NodeLink } from "../../parts/Name";
import { NodeState } from "../../parts/NodeState";
import { Empty } from "../../parts/Panel";
import { ReservationBadge } from "../../parts/Reservation";
import type { Fit } from "./filter";
import type { Fleet } from "./fleet";
import { type NodeRow, rowsOf } from "./rows";

/** Jobs that are named in a row; of more, how many more. */
const NAMED = 2;

const COLUMNS: Column<NodeRow>[] = [
  { id: "name", header: "Node", cell: ({ node }) => <NodeLink node={node.id} name={node.name} />, sort: "name" },
  {
    id: "state",
    header: "State",
    cell: ({ node, broken, reservations }) => (
      <>
        <NodeState node={node} />
        {broken > 0 && <span className="bad nowrap"> ! {broken} broken</span>}
        <ReservationBadge reservations={reservations} short />
      </>
    ),
    sort: "state",
    width: "112px",
    hint: "The worst first",
  },
  {
    id: "reserved",
    header: "Reserved",
    cell: ({ reservations }) => <ReservationBadge reservations={reservations} />,
    sort: "reserved",
    width: "20%",
    from: "desktop",
    hint: "The next reservation first",
  },
  { id: "type", header: "Type", cell: ({ node }) => <Middle text={node.type} />, sort: "type", width: "110px", from: "tablet" },
  { id: "domain", header: "Domain", cell: (row) => <Middle text={row.domain} />, sort: "domain", width: "110px", from: "desktop" },
  { id: "busy", header: "Held", cell: ({ busy, node }) => `${busy} of ${node.gpus}`, sort: "busy", width: "62px", number: true, hint: "GPUs that jobs hold" },
  { id: "free", header: "Free", cell: (row) => row.free, sort: "free", width: "46px", number: true, hint: "GPUs that jobs could start on now" },
  {
    id: "jobs",
    header: "Jobs",
    cell: ({ holders }) => (
      <span className="row cluster-holders">
        {holders.slice(0, NAMED).map((job) => (
          <JobLink key={job.id} id={job.id} name={job.name} />
        ))}
        {holders.length > NAMED && <span className="muted nowrap">+{holders.length - NAMED}</span>}
      </span>
    ),
    width: "22%",
    from: "tablet",
  },
];

/** Columns of a cluster without reservations. */
const WITHOUT_RESERVED = COLUMNS.filter((column) => column.id !== "reserved");

interface Props {
  fleet: Fleet;
  fit: Fit | undefined;
  reservations: ReservationsByNode;
  sort: string | undefined;
  onSort: (sort: string) => void;
  onOpen: (node: string) => void;
  selected: string | undefined;
}

export function NodeTable({ fleet, fit, reservations, sort = "name", onSort, onOpen, selected }: Props) {
  const rows = useMemo(() => rowsOf(fleet, fit, sort, reservations), [fleet, fit, sort, reservations]);
  if (rows.length === 0) return <Empty>The filter hides all {count(fleet.nodes.length)} nodes.</Empty>;
  return (
    <DataTable
      label="Nodes of the cluster"
      rows={rows}
      columns={reservations.size > 0 ? COLUMNS : WITHOUT_RESERVED}
      keyOf={(row) => row.node.id}
      sort={sort}
      onSort={onSort}
      onOpen={(row) => onOpen(row.node.id)}
      selected={selected}
      over={(row) => row.node.health === "lost"}
      height={620}
      testId="cluster-table"
    />
  );
}
