// The columns of the queue. Beside an open panel, which says the rest, there are fewer.

import { Link } from "@tanstack/react-router";
import type { QueuedJob } from "../../api/client";
import { serverNow } from "../../lib/clock";
import type { Column } from "../../parts/DataTable";
import { ReservedSentence } from "../../parts/Reservation";
import { JobLink } from "../../parts/Name";
import { Ago } from "../../parts/Time";
import { Band, Median } from "./Starts";

/** A reason's code as people read it. */
export function reasonInWords(code: string): string {
  return code === "unplanned" ? "no round yet" : code.replaceAll("_", " ");
}

const place: Column<QueuedJob> = {
  id: "place",
  header: "#",
  hint: "place in the whole queue: by predicted start as far as one is known, then by priority and arrival",
  width: "38px",
  number: true,
  cell: (row) => row.place,
};
const name: Column<QueuedJob> = { id: "name", header: "Job", cell: (row) => <JobLink id={row.job_id} name={row.name} /> };
const gpus: Column<QueuedJob> = {
  id: "gpus",
  header: "GPUs",
  hint: "the fewest and the most that it runs on",
  width: "72px",
  number: true,
  cell: (row) => (
    <span title={row.gpu_types.length > 0 ? row.gpu_types.join(", ") : "of any type"}>
      {row.gpus_min === row.gpus_max ? row.gpus_min : `${row.gpus_min}–${row.gpus_max}`}
    </span>
  ),
};
const project: Column<QueuedJob> = {
  id: "project",
  header: "Project",
  width: "90px",
  from: "desktop",
  cell: (row) => (
    <Link to="/queue" search={(before) => ({ ...before, project: row.project })} resetScroll={false} title={`only the project ${row.project}`}>
      {row.project}
    </Link>
  ),
};
const owner: Column<QueuedJob> = {
  id: "owner",
  header: "Owner",
  width: "90px",
  from: "desktop",
  cell: (row) => (
    <Link to="/queue" search={(before) => ({ ...before, user: row.owner })} resetScroll={false} title={`only jobs of ${row.owner}`}>
      {row.owner}
    </Link>
  ),
};
const priority: Column<QueuedJob> = {
  id: "priority",
  header: "Prio",
  hint: "priority, 0 to 100",
  width: "48px",
  number: true,
  from: "desktop",
  cell: (row) => row.priority,
};
const age: Column<QueuedJob> = {
  id: "age",
  header: "Waits",
  width: "76px",
  number: true,
  from: "tablet",
  cell: (row) => <Ago at={row.since} suffix="" />,
};
const why: Column<QueuedJob> = { id: "why", header: "Why", from: "tablet", cell: (row) => <Why of={row.waiting} /> };
const starts: Column<QueuedJob> = {
  id: "starts",
  header: "Starts",
  hint: "predicted: as likely before as after",
  width: "96px",
  number: true,
  cell: (row) => <Median of={row.waiting} now={serverNow()} />,
};
const band: Column<QueuedJob> = {
  id: "band",
  header: "p10–p90",
  hint: "four of five starts should fall within; drawn on a scale of up to two days, the same in all rows",
  width: "200px",
  from: "desktop",
  cell: (row) => <Band of={row.waiting} now={serverNow()} />,
};

export const ALL: readonly Column<QueuedJob>[] = [place, name, gpus, project, owner, priority, age, why, starts, band];
export const BESIDE: readonly Column<QueuedJob>[] = [place, name, gpus, why, starts];

/** What can never run says so in red: it waits for nothing but an edit. */
function Why({ of }: { of: QueuedJob["waiting"] }) {
  return (
    <span title={of.headline} className={of.code === "never" ? "bad" : undefined}>
      {of.code === "never" && <span aria-hidden>✕ </span>}
      <ReservedSentence code={of.code}>{of.headline}</ReservedSentence>
    </span>
  );
}
