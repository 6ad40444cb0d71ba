// The queue of a past moment: who waited, and why by the plan that was in force. Who is chosen stands in the address.

import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { queryOf } from "../../lib/commands";
import { absolute, count, duration } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { Filter } from "../../parts/Filter";
import { More, useWanted } from "../../parts/More";
import { JobLink } from "../../parts/Name";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { psCommand, usePastJobs } from "../jobs/list";
import { reasonInWords } from "./columns";
import { type Waited, type Why, whyWaited } from "./past";
import { type QueueFilter, type Verdict, usePlanOf, useSaid } from "./queries";

interface Props {
  at: string;
  job: string | undefined;
  filter: QueueFilter;
}

export function PastQueue({ at, job, filter }: Props) {
  const { project, user, q } = filter;
  const navigate = useNavigate({ from: "/queue" });
  const { wanted, more } = useWanted(JSON.stringify([at, project, user, q]));
  const jobs = usePastJobs(at, { state: "queued", project, user, q }, wanted);
  const plan = usePlanOf(at);
  const said = useSaid(plan.data?.id);
  const columns = useMemo(() => columnsAt(at), [at]);
  const known = plan.data !== undefined && (plan.data === null || said.data !== undefined);
  const rows = useMemo(
    () => (known ? jobs.data?.items.map((job): Waited => ({ job, why: whyWaited(job, plan.data, said.data) })) : undefined),
    [known, jobs.data, plan.data, said.data],
  );
  const asked: Asked<Waited[]> = {
    data: rows,
    error: jobs.error ?? plan.error ?? said.error,
    dataUpdatedAt: Math.min(jobs.dataUpdatedAt, plan.dataUpdatedAt),
    isFetching: jobs.isFetching || plan.isFetching || said.isFetching,
    refetch: () => Promise.all([jobs.refetch(), plan.refetch(), ...(plan.data ? [said.refetch()] : [])]),
  };
  const set = (changes: QueueFilter) => void navigate({ search: (before) => ({ ...before, ...changes }), resetScroll: false });
  const choose = (id: string) =>
    void navigate({ search: (before) => ({ ...before, job: id === job ? undefined : id }), replace: job !== undefined, resetScroll: false });
  return (
    <>
      <PastFilters filter={filter} onChange={set} />
      <Panel
        title="Jobs that waited"
        note={`at ${absolute(at)}`}
        id="past-queue"
        asked={asked}
        everySeconds={Number.POSITIVE_INFINITY}
        height={420}
        tools={
          <CopyAs
            command={psCommand(["queued"], { at, project, user, name: q })}
            path={`/api/v1/jobs${queryOf({ at, state: "queued", project, user, q })}`}
          />
        }
      >
        {(list) => (
          <>
            <p className="muted">
              {plan.data ? (
                <>
                  Why, by the{" "}
                  <Link to="/plan" search={{ at, plan: plan.data.id }}>
                    plan in force
                  </Link>
                  , made at {absolute(plan.data.made_at)}. Rounds since then that changed nothing are not kept.
                </>
              ) : (
                "No plan was in force, or none of then is kept: nobody knows why."
              )}
            </p>
            {list.length === 0 ? (
              <Empty>Nobody{(project ?? user ?? q) !== undefined && " that the filters admit"} waited then.</Empty>
            ) : (
              <DataTable
                label={`Jobs that waited at ${absolute(at)}`}
                testId="past-queue-table"
                rows={list}
                columns={columns}
                keyOf={(row) => row.job.id}
                onOpen={(row) => choose(row.job.id)}
                selected={job}
                height={360}
              />
            )}
            <div aria-live="polite">{job !== undefined && <Chosen of={list.find((row) => row.job.id === job)} />}</div>
            <More
              shown={list.length}
              total={jobs.data?.next_cursor == null ? list.length : undefined}
              of="jobs"
              further={jobs.data?.next_cursor != null}
              more={more}
              busy={jobs.isPlaceholderData}
            />
          </>
        )}
      </Panel>
    </>
  );
}

function PastFilters({ filter: { project, user, code, type, q }, onChange }: { filter: QueueFilter; onChange: (change: QueueFilter) => void }) {
  const set = [project, user, code, type, q].some((value) => value !== undefined);
  return (
    <div className="queue-filters row">
      <Filter first label="Part of the name" hint="in any case (/)" value={q} onChange={(value) => onChange({ q: value })} />
      <Filter label="Project" hint="its whole name" value={project} onChange={(value) => onChange({ project: value })} />
      <Filter label="Owner" hint="the whole name of who has submitted" value={user} onChange={(value) => onChange({ user: value })} />
      {set && (
        <button className="link" onClick={() => onChange({ code: undefined, project: undefined, user: undefined, type: undefined, q: undefined })}>
          Clear filters
        </button>
      )}
      {(code ?? type) !== undefined && <span className="muted">The past is not filtered by reason or GPU type.</span>}
    </div>
  );
}

/** Of whom the plan in force says nothing that would explain it. */
const OTHERWISE: Record<Exclude<Why["known"], "said" | "given">, string> = {
  later: "came after that plan was made",
  unknown: "that plan says nothing of it: it ran then, or was not to run yet",
  no_plan: "not known",
};

function columnsAt(at: string): Column<Waited>[] {
  return [
    { id: "name", header: "Job", width: "24%", cell: ({ job }) => <JobLink id={job.id} name={job.name} /> },
    {
      id: "since",
      header: "Had waited",
      width: "96px",
      number: true,
      cell: ({ job }) => (
        <time dateTime={job.state_since} title={absolute(job.state_since)}>
          {duration((Date.parse(at) - Date.parse(job.state_since)) / 1_000)}
        </time>
      ),
    },
    { id: "owner", header: "Owner", width: "100px", from: "tablet", cell: ({ job }) => job.owner },
    { id: "project", header: "Project", width: "100px", from: "tablet", cell: ({ job }) => job.project },
    { id: "why", header: "Why", cell: ({ why }) => <InShort of={why} /> },
  ];
}

function InShort({ of }: { of: Why }) {
  if (of.known === "said") return <span title={of.verdict.headline}>{of.verdict.headline}</span>;
  return <span className="muted">{of.known === "given" ? `that plan gives it ${count(of.gpus)} GPUs, which it had yet to get` : OTHERWISE[of.known]}</span>;
}

/** All that the plan in force said of one job. */
function Chosen({ of }: { of: Waited | undefined }) {
  return (
    <section className="queue-reasons" data-testid="past-reasons">
      {of ? (
        <>
          <h3>{of.job.name}</h3>
          <p>
            <InShort of={of.why} />
          </p>
          {of.why.known === "said" && <Reasons of={of.why.verdict} />}
        </>
      ) : (
        <p>This job is not among those that are shown: it did not wait then, or stands further down.</p>
      )}
    </section>
  );
}

function Reasons({ of: { reasons } }: { of: Verdict }) {
  if (reasons.length === 0) return null;
  return (
    <ul>
      {reasons.map(({ code, detail, binding }) => (
        <li key={`${code} ${detail}`}>
          <strong>{reasonInWords(code)}</strong> {detail}
          {binding && <span className="muted"> (without this alone it would have been otherwise)</span>}
        </li>
      ))}
    </ul>
  );
}
