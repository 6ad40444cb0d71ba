// The columns of the jobs' list: one line per job, from what it is to why it waits or what changed last.

import { Link } from "@tanstack/react-router";
import { count, duration, layoutOf, percent, si, times } from "../../lib/format";
import type { Column } from "../../parts/DataTable";
import { JobLink } from "../../parts/Name";
import { State } from "../../parts/State";
import { Ago } from "../../parts/Time";
import type { Row } from "./list";

export const COLUMNS: readonly Column<Row>[] = [
  { id: "name", header: "Job", sort: "name", cell: (row) => <JobLink id={row.id} name={row.name} /> },
  { id: "state", header: "State", width: "108px", cell: (row) => <State state={row.state} cause={row.state_cause ?? null} /> },
  { id: "owner", header: "Owner", sort: "owner", width: "76px", from: "desktop", cell: (row) => <Only by="user" name={row.owner} /> },
  { id: "project", header: "Project", sort: "project", width: "76px", from: "desktop", cell: (row) => <Only by="project" name={row.project} /> },
  {
    id: "gpus",
    header: "GPUs",
    sort: "gpus",
    hint: "what it holds; of one that waits, the fewest and the most that it runs on",
    width: "84px",
    number: true,
    cell: (row) => <Gpus of={row} />,
  },
  {
    id: "layout",
    header: "Layout",
    hint: "degrees of data, tensor and pipeline parallelism",
    width: "104px",
    from: "desktop",
    cell: (row) => <span title={layoutOf(row.layout, row.execution)}>{layoutOf(row.layout, row.execution, true)}</span>,
  },
  {
    id: "batch",
    header: "Batch",
    hint: "sequences per optimizer step",
    width: "64px",
    number: true,
    from: "wide",
    cell: (row) =>
      row.global_batch_sequences != null && (
        <span title={`${si(row.global_batch_tokens)} tokens`}>{count(row.global_batch_sequences)}</span>
      ),
  },
  {
    id: "goodput",
    header: "Goodput",
    sort: "goodput",
    hint: "reference tokens per second",
    width: "84px",
    number: true,
    from: "tablet",
    cell: (row) => row.goodput_tokens_per_second != null && si(row.goodput_tokens_per_second),
  },
  {
    id: "efficiency",
    header: "Per token",
    hint: "statistical efficiency: what a token is worth, beside one at the reference batch",
    width: "84px",
    number: true,
    from: "wide",
    cell: (row) => row.efficiency != null && times(row.efficiency),
  },
  {
    id: "progress",
    header: "Done",
    sort: "progress",
    hint: "of its target; of a job without one nobody can say",
    width: "64px",
    number: true,
    from: "desktop",
    cell: (row) => row.progress_fraction != null && percent(row.progress_fraction),
  },
  {
    id: "eta",
    header: "ETA",
    sort: "eta",
    hint: "predicted, at its present goodput",
    width: "96px",
    number: true,
    from: "desktop",
    cell: (row) => row.eta_seconds != null && `≈ ${duration(row.eta_seconds)}`,
  },
  {
    id: "age",
    header: "Age",
    sort: "submitted",
    hint: "since it was submitted",
    width: "76px",
    number: true,
    from: "desktop",
    cell: (row) => <Ago at={row.submitted_at} suffix="" />,
  },
  { id: "why", header: "Why, or last change", from: "tablet", cell: (row) => <Why of={row} /> },
];

/** A press shows what is of the same owner or project alone. */
function Only({ by, name }: { by: "user" | "project"; name: string }) {
  return (
    <Link to="/jobs" search={(before) => ({ ...before, [by]: name })} resetScroll={false} title={`only of ${name}`}>
      {name}
    </Link>
  );
}

function Gpus({ of: { gpus, gpus_min: min, gpus_max: max } }: { of: Row }) {
  const range = min === max ? count(min) : `${count(min)}–${count(max)}`;
  return gpus > 0 ? <span title={`of ${range}`}>{count(gpus)}</span> : <span className="muted">{range}</span>;
}

/** Of one that waits why, of one that failed how, else what changed last. */
function Why({ of }: { of: Row }) {
  if (of.waiting) {
    const never = of.waiting.code === "never";
    return (
      <span title={of.waiting.headline} className={never ? "bad" : undefined}>
        {never && <span aria-hidden>✕ </span>}
        {of.waiting.headline}
      </span>
    );
  }
  if (of.ended_at != null || of.state === "stopping") {
    return (
      <span title={of.state_cause ?? undefined}>
        <Ago at={of.ended_at ?? of.state_since} />
        {of.state_cause && `: ${of.state_cause}`}
      </span>
    );
  }
  if (!of.last_change) return null;
  return (
    <span title={of.last_change.reason}>
      <Ago at={of.last_change.at} />: {of.last_change.reason}
    </span>
  );
}
