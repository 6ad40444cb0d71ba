// One job: what it has, what that brings and why, what became of its GPU-hours, and what can be done to it.

import { Link, useParams, useSearch } from "@tanstack/react-router";
import { type ComponentType, type LazyExoticComponent, Suspense, lazy } from "react";
import { ApiError } from "../../api/client";
import { absolute } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { Middle, NodeLink, Swatch } from "../../parts/Name";
import { Failed, Loading } from "../../parts/Panel";
import { State } from "../../parts/State";
import { Ago } from "../../parts/Time";
import { Actions } from "./Actions";
import { type JobDetail, useFresh, useJobDetail, usePastJob } from "./asks";
import { Fact, HeadFacts, Notices } from "./HeadFacts";
import { gpusOf } from "./words";
import "./job.css";

/** What each tab is shown with. `at`: a past moment instead of the present. */
export interface TabProps {
  job: JobDetail;
  at: string | undefined;
}

const TABS = {
  goodput: { name: "Goodput", part: lazy(() => import("./GoodputTab")) },
  allocations: { name: "Allocations", part: lazy(() => import("./AllocationsTab")) },
  logs: { name: "Logs", part: lazy(() => import("./logs/LogsTab")) },
  events: { name: "Events", part: lazy(() => import("./EventsTab")) },
  config: { name: "Config", part: lazy(() => import("./ConfigTab")) },
  checkpoints: { name: "Checkpoints", part: lazy(() => import("./CheckpointsTab")) },
} satisfies Record<string, { name: string; part: LazyExoticComponent<ComponentType<TabProps>> }>;
type TabName = keyof typeof TABS;
const NAMES = Object.keys(TABS) as TabName[];

export default function JobPage() {
  const { id } = useParams({ from: "/jobs/$id" });
  const { tab = "goodput" } = useSearch({ from: "/jobs/$id" });
  const { at } = useSearch({ from: "__root__" });
  const asked = useJobDetail(id);
  const job = asked.data;
  useFresh(id, job);
  if (!job) {
    return (
      <div className="job-page" data-testid="page-job">
        <header className="page-head">
          <h1>Job</h1>
        </header>
        {asked.error ? <Missing error={asked.error} asked={asked} /> : <Loading height={400} />}
      </div>
    );
  }
  const Part = TABS[tab].part;
  return (
    <div className="job-page" data-testid="page-job">
      <header className="page-head">
        <h1 className="job-name">
          <Swatch id={id} />
          <Middle text={job.name} />
        </h1>
        {at ? (
          <StateThen id={id} at={at} />
        ) : (
          <span data-testid="job-state">
            <State state={job.state} cause={job.state_cause ?? null} />{" "}
            <span className="muted">
              <Ago at={job.state_since} suffix="" />
              {job.state_cause && `: ${job.state_cause}`}
            </span>
          </span>
        )}
        <span className="space" />
        <CopyAs command={`headway describe ${id}`} path={`/api/v1/jobs/${id}`} />
      </header>
      {asked.error && <Failed error={asked.error} asked={asked} />}
      {at ? (
        <p className="muted">
          Submitted {absolute(job.submitted_at)} by {job.owner}, project {job.project}. Nothing can be done to the past.
        </p>
      ) : (
        <>
          <HeadFacts job={job} />
          <Notices job={job} />
          <Actions job={job} />
        </>
      )}
      <nav className="tabs" aria-label="Parts of this page">
        {NAMES.map((name) => (
          <Link
            key={name}
            to="/jobs/$id"
            params={{ id }}
            // A filter belongs to the tab that it was typed in.
            search={(before) => ({ at: before.at, tab: name })}
            aria-current={name === tab ? "page" : undefined}
            data-testid={`tab-${name}`}
          >
            {TABS[name].name}
          </Link>
        ))}
      </nav>
      {job.spec == null ? (
        <Closed job={job} />
      ) : (
        <Suspense fallback={<Loading height={400} />}>
          <Part key={id} job={job} at={at} />
        </Suspense>
      )}
    </div>
  );
}

/** Of a past moment no more is known than state, GPUs and nodes. */
function StateThen({ id, at }: { id: string; at: string }) {
  const asked = usePastJob(id, at);
  if (asked.error) return <Failed error={asked.error} asked={asked} />;
  if (!asked.data) return null;
  const then = asked.data;
  return (
    <dl className="job-facts" data-testid="job-then">
      <Fact name="State then">
        <State state={then.state} /> <span className="muted">since {absolute(then.state_since)}</span>
      </Fact>
      <Fact name="GPUs then">{then.gpus > 0 ? gpusOf(then.gpus) : "none"}</Fact>
      {then.nodes.length > 0 && (
        <Fact name="Nodes then">
          {then.nodes.map((node) => (
            <NodeLink key={node} node={node} />
          ))}
        </Fact>
      )}
    </dl>
  );
}

/** Who sees that a job exists need not be one who may read it. */
function Closed({ job }: { job: JobDetail }) {
  return (
    <p className="empty muted" data-testid="denied">
      What {job.name} is made of, its logs, events and measurements are for its owner, the members of the project {job.project}, operators and admins. An admin of the project makes
      members: <code>headway project member add</code>.
    </p>
  );
}

function Missing({ error, asked }: { error: Error; asked: Pick<ReturnType<typeof useJobDetail>, "refetch" | "isFetching"> }) {
  const gone = error instanceof ApiError && (error.status === 404 || error.status === 400);
  return (
    <>
      <Failed error={error} asked={asked} />
      {gone && (
        <p>
          There is no such job, or none that you may know of. <Link to="/jobs">All jobs</Link>
        </p>
      )}
    </>
  );
}
