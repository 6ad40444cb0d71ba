// A plan that cannot be approved any more: what has changed since it was made, and what would be done instead.

import { Link } from "@tanstack/react-router";
import type { ApiError, Overview, Plan } from "../../api/client";
import { count, si } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, PlanLink } from "../../parts/Name";
import { Box, Empty, Failed, Loading } from "../../parts/Panel";
import { type PlanChange, useDiff } from "./asks";
import type { Exclusions } from "./exclusions";
import { Refused } from "./Moves";
import { change, layout } from "./words";

interface Props {
  plan: Plan;
  overview: Overview;
  /** What the server said when it refused. */
  conflict: ApiError | undefined;
  exclusions: Exclusions;
  /** Whether this person may have it solved again. */
  may: boolean;
}

export function Since({ plan, overview, conflict, exclusions, may }: Props) {
  const target = overview.plan_id ?? undefined;
  const waiting = overview.plans_waiting.find((id) => id !== plan.id);
  const moved = target !== undefined && target !== plan.parent_id && target !== plan.id;
  const otherwise = waiting ?? (moved ? target : undefined);
  return (
    <Box title="This plan is out of date" id="plan-since" className="plan-since">
      <p>
        {conflict ? conflict.message : "A newer plan was made, or nobody decided on it in time."}{" "}
        {waiting ? (
          <>
            Instead waits <PlanLink id={waiting} />.
          </>
        ) : (
          may &&
          !plan.terms?.undoes && (
            <button className="button" onClick={exclusions.solve} disabled={exclusions.solving}>
              {exclusions.solving ? "Solving again …" : "Solve again on the same terms"}
            </button>
          )
        )}
      </p>
      {exclusions.error && <Refused error={exclusions.error} />}
      {moved && plan.parent_id && (
        <Changes id={target} against={plan.parent_id} title="Since it was made the plan in force has changed" none="It gives the same to everybody as the one that this plan was made from." />
      )}
      {!waiting && target !== undefined && target === plan.parent_id && (
        <p className="muted">
          The plan that it was made from is still in force, but not all of this one fits the cluster any more, or nobody decided in time:{" "}
          <Link to="/events">the events</Link> tell.
        </p>
      )}
      {otherwise && (
        <Changes
          id={otherwise}
          against={plan.id}
          title={waiting ? "What waits now gives otherwise than this plan" : "What is in force gives otherwise than this plan"}
          none="It gives the same to everybody as this plan."
        />
      )}
    </Box>
  );
}

const COLUMNS: Column<PlanChange>[] = [
  { id: "job", header: "Job", width: "26%", cell: (one) => <JobLink id={one.job_id} name={one.job_name} /> },
  { id: "gpus", header: "GPUs", number: true, width: "100px", cell: (one) => change(one.from_gpus, one.to_gpus, count) },
  {
    id: "layout",
    header: "Layout",
    width: "200px",
    from: "desktop",
    cell: (one) => change(one.from_configuration, one.to_configuration, layout),
  },
  {
    id: "goodput",
    header: "Goodput, tok/s",
    number: true,
    width: "150px",
    from: "tablet",
    cell: (one) => change(one.from_goodput_tokens_per_second, one.to_goodput_tokens_per_second, si),
  },
  { id: "nodes", header: "Nodes", cell: (one) => <Nodes of={one} /> },
];

function Nodes({ of: { from_nodes: from, to_nodes: to } }: { of: PlanChange }) {
  const words = change(from, to, (names) => (names.length === 0 ? "none" : names.join(", ")));
  return <span title={words}>{words}</span>;
}

function Changes({ id, against, title, none }: { id: string; against: string; title: string; none: string }) {
  const diff = useDiff(id, against);
  return (
    <section>
      <h3>
        {title} <span className="muted">{diff.data && `(${count(diff.data.changes.length)} ${diff.data.changes.length === 1 ? "job" : "jobs"})`}</span>{" "}
        <PlanLink id={against} /> → <PlanLink id={id} />
      </h3>
      {diff.error ? (
        <Failed error={diff.error} asked={diff} />
      ) : !diff.data ? (
        <Loading height={84} />
      ) : diff.data.changes.length === 0 ? (
        <Empty>{none}</Empty>
      ) : (
        <DataTable label={title} rows={diff.data.changes} columns={COLUMNS} keyOf={(one) => one.job_id} height={252} />
      )}
    </section>
  );
}
