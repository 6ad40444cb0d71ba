// What happened last.

import { Link } from "@tanstack/react-router";
import { memo, useMemo } from "react";
import type { EventRecord } from "../../api/client";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, NodeLink, PlanLink } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";
import { useNewest } from "./asked";

const ROWS = 12;

function About({ event }: { event: EventRecord }) {
  if (event.job_id) return <JobLink id={event.job_id} name={event.job_name ?? null} />;
  if (event.node_id) return <NodeLink node={event.node_id} name={event.node_name ?? event.node_id.slice(-8)} />;
  if (event.plan_id) return <PlanLink id={event.plan_id} />;
  return null;
}

const COLUMNS: Column<EventRecord>[] = [
  { id: "at", header: "When", width: "76px", cell: (event) => <Ago at={event.at} suffix="" />, hint: "ago" },
  {
    id: "message",
    header: "What",
    cell: (event) => (
      <Link to="/events" search={{ event: String(event.seq) }} title={`${event.verb}: ${event.message}`} className="newest-message">
        {event.message}
      </Link>
    ),
  },
  { id: "about", header: "Of", width: "96px", cell: (event) => <About event={event} /> },
];

export const Newest = memo(function Newest({ at }: { at: string | undefined }) {
  const events = useNewest(ROWS, at);
  const asked = useMemo(() => (at ? { ...events, dataUpdatedAt: Number.POSITIVE_INFINITY } : events), [events, at]);
  return (
    <Panel
      title={at ? "Events before" : "Newest events"}
      note={events.data && `the last ${events.data.items.length}`}
      id="newest"
      className="span-4"
      asked={asked}
      everySeconds={15}
      height={ROWS * 28 + 28}
      tools={
        <>
          <CopyAs command={`headway events --limit ${ROWS}`} path={`/api/v1/events?limit=${ROWS}`} />
          <Link to="/events">all events</Link>
        </>
      }
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>Nothing has happened yet. Nodes that join and jobs that are submitted are told here.</Empty>
        ) : (
          <DataTable label="Newest events" rows={items} columns={COLUMNS} keyOf={(event) => String(event.seq)} height={ROWS * 28 + 30} />
        )
      }
    </Panel>
  );
});
