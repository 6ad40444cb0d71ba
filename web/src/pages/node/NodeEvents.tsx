// What happened on a node, the newest first: also of one that was deleted, or as it was known at a past moment.

import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { EventRecord } from "../../api/client";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, Middle, PlanLink } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import { EVENTS, useNodeEvents } from "./queries";

const COLUMNS: Column<EventRecord>[] = [
  { id: "at", header: "When", cell: (event) => <When at={event.at} />, width: "128px" },
  {
    id: "what",
    header: "What",
    cell: (event) => (
      <Link to="/events" search={{ event: String(event.seq) }} className="named" title={event.message}>
        <Middle text={event.message} />
      </Link>
    ),
  },
  { id: "verb", header: "Kind", cell: (event) => <span className="mono">{event.verb}</span>, width: "156px", from: "tablet" },
  { id: "actor", header: "By", cell: (event) => <Middle text={event.actor.replace(/^user:/, "")} />, width: "128px", from: "tablet" },
  {
    id: "of",
    header: "Job, plan",
    cell: (event) => (
      <span className="row node-of">
        {event.job_id && <JobLink id={event.job_id} />}
        {event.plan_id && <PlanLink id={event.plan_id} />}
      </span>
    ),
    width: "190px",
    from: "tablet",
  },
];

interface Props {
  node: string;
  /** A past moment: what came after is not told. */
  until: string | undefined;
  className: string;
}

export function NodeEvents({ node, until, className }: Props) {
  // Numbers before which pages began, the newest page first.
  const [pages, setPages] = useState<number[]>([]);
  const asked = useNodeEvents(node, pages.at(-1), until);
  const next = asked.data?.next_cursor;
  return (
    <Panel
      title="Events"
      id="node-events"
      className={className}
      note={asked.data && (pages.length > 0 ? `page ${pages.length + 1}, ${EVENTS} each` : next ? `the newest ${EVENTS}` : `all ${asked.data.items.length}`)}
      asked={asked}
      everySeconds={30}
      height={280}
      tools={
        <span className="row">
          <button className="link" disabled={pages.length === 0} onClick={() => setPages(pages.slice(0, -1))}>
            newer
          </button>
          <button className="link" disabled={!next} onClick={() => next && setPages([...pages, Number(next)])}>
            older
          </button>
          <Link to="/events" search={{ node }}>
            all in Events
          </Link>
        </span>
      }
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>Nothing is in the log of it{until ? " before that moment" : ""}: older events may have been deleted, as the policy says.</Empty>
        ) : (
          <DataTable label="Events of the node" rows={items} columns={COLUMNS} keyOf={(event) => String(event.seq)} height={320} testId="node-event-table" />
        )
      }
    </Panel>
  );
}
