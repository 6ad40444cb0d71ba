// What happened last.

import { Link } from "@tanstack/react-router";
import { memo, useMemo } from "react";
import type { EventRecord } from "../../api/client";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { Empty, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";
import { NEWS, verbShown } from "../events/verbs";
import { useNewest } from "./asked";

const ROWS = 12;
const VERBS = NEWS.join(",");

const COLUMNS: Column<EventRecord>[] = [
  { id: "at", header: "When", width: "76px", cell: (event) => <Ago at={event.at} suffix="" />, hint: "ago" },
  {
    id: "message",
    header: "What",
    cell: (event) => (
      <Link to="/events" search={{ event: String(event.seq) }} title={`${event.verb}: ${event.message}`} className="newest-message">
        <span className={`nowrap ${verbShown(event.verb).tone}`} aria-hidden>
          {verbShown(event.verb).glyph}
        </span>{" "}
        {event.message}
      </Link>
    ),
  },
];

export const Newest = memo(function Newest({ at }: { at: string | undefined }) {
  const events = useNewest(VERBS, ROWS, at);
  const asked = useMemo(() => (at ? { ...events, dataUpdatedAt: Number.POSITIVE_INFINITY } : events), [events, at]);
  return (
    <Panel
      title={at ? "Events before" : "Newest events"}
      note={events.data && `${events.data.items.length} of note`}
      id="newest"
      className="span-4"
      asked={asked}
      everySeconds={15}
      height={ROWS * 28 + 28}
      tools={
        <>
          <CopyAs command={`headway events --verb ${VERBS} --limit ${ROWS}`} path={`/api/v1/events?verb=${VERBS}&limit=${ROWS}`} />
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
