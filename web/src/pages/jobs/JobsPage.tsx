// All jobs, live and ended: counts by state that filter, a search, and one line per job. The filters and the order are the URL's.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { CopyAs } from "../../parts/CopyAs";
import { type Counted, Counts } from "../../parts/Counts";
import { DataTable } from "../../parts/DataTable";
import { Filter } from "../../parts/Filter";
import { More, useWanted } from "../../parts/More";
import { Empty, Panel } from "../../parts/Panel";
import { State } from "../../parts/State";
import { queryOf } from "../../lib/commands";
import { COLUMNS } from "./columns";
import { type JobsFilter, psCommand, useJobs } from "./list";
import { FINAL_STATES, LIVE_STATES, asked, pressed, shown, statesOf, toggled } from "./order";
import { PastJobs } from "./PastJobs";

type Totals = NonNullable<ReturnType<typeof useJobs>["data"]>["totals"];

export default function JobsPage() {
  const { at, sort, state, project, user, label, q } = useSearch({ from: "/jobs" });
  const navigate = useNavigate({ from: "/jobs" });
  const states = statesOf(state);
  const filter: JobsFilter = { state: states.join(",") || undefined, project, user, label, q };
  const change = (to: JobsFilter & { sort?: string | undefined }, replace = false) =>
    void navigate({ search: (before) => ({ ...before, ...to }), replace, resetScroll: false });
  return (
    <div data-testid="page-jobs" className="stack jobs">
      <header className="page-head">
        <h1>Jobs</h1>
        <span className="muted">
          what waits, and why: <Link to="/queue">Queue</Link>
        </span>
      </header>
      <div className="row jobs-filters" role="search" aria-label="Filter jobs">
        <Filter first label="Part of the name" hint="in any case (/)" width={200} value={q} onChange={(text) => change({ q: text }, true)} />
        <Filter label="Owner" hint="the whole name" value={user} onChange={(text) => change({ user: text }, true)} />
        <Filter label="Project" hint="the whole name" value={project} onChange={(text) => change({ project: text }, true)} />
        {!at && (
          <Filter label="Label" hint="name, or name=value; several with commas between" value={label} onChange={(text) => change({ label: text }, true)} />
        )}
        {Object.values(filter).some((value) => value !== undefined) && (
          <Link to="/jobs" search={(before) => ({ at: before.at, sort: asked(sort, []) })} resetScroll={false}>
            Clear filters
          </Link>
        )}
      </div>
      {at ? (
        <PastJobs at={at} filter={filter} states={states} onState={(next) => change({ state: next })} />
      ) : (
        <PresentJobs filter={filter} states={states} sort={asked(sort, states)} onChange={change} />
      )}
    </div>
  );
}

interface PresentProps {
  filter: JobsFilter;
  states: readonly string[];
  sort: string | undefined;
  onChange: (change: JobsFilter & { sort?: string | undefined }) => void;
}

function PresentJobs({ filter, states, sort, onChange }: PresentProps) {
  const navigate = useNavigate();
  const { wanted, more } = useWanted(JSON.stringify([filter, sort]));
  const jobs = useJobs(filter, sort, wanted);
  return (
    <>
      <Counts
        label="States"
        testId="state-counts"
        counts={counted(jobs.data?.totals)}
        pressed={(state) => states.includes(state)}
        onPress={(state) => onChange({ state: toggled(state, states) })}
      />
      <Panel title="All jobs" id="jobs" asked={jobs} everySeconds={15} height={420} tools={<CopyAs {...asCommand(filter, states, sort)} />}>
        {(list) =>
          list.items.length === 0 ? (
            <Nothing filter={filter} totals={list.totals} />
          ) : (
            <div aria-busy={jobs.isPlaceholderData}>
              <DataTable
                label="Jobs"
                testId="jobs-table"
                rows={list.items}
                columns={COLUMNS}
                keyOf={(row) => row.id}
                sort={shown(sort)}
                onSort={(column) => onChange(pressed(column, sort, states))}
                onOpen={(row) => void navigate({ to: "/jobs/$id", params: { id: row.id }, search: {} })}
                over={(row) => row.ended_at != null}
                height={640}
              />
              <More
                shown={list.items.length}
                total={list.totals?.jobs}
                of="jobs"
                further={list.next_cursor != null}
                more={more}
                busy={jobs.isPlaceholderData}
              />
            </div>
          )
        }
      </Panel>
    </>
  );
}

/** Groups first, then each state. A count is what pressing it alone would show. */
function counted(totals: Totals): Counted[] {
  const of = (state: string) => (totals ? (totals.by_state[state] ?? 0) : undefined);
  const all = (states: readonly string[]) => (totals ? states.reduce((sum, state) => sum + (of(state) ?? 0), 0) : undefined);
  return [
    { key: "live", label: "not ended", count: all(LIVE_STATES) },
    { key: "ended", label: "ended", count: all(FINAL_STATES) },
    ...[...LIVE_STATES, ...FINAL_STATES].map((state) => ({ key: state, label: <State state={state} />, count: of(state) })),
  ];
}

function asCommand({ state, project, user, label, q }: JobsFilter, states: readonly string[], sort: string | undefined) {
  return {
    command: psCommand(states, { project, user, label, name: q, sort }),
    path: `/api/v1/jobs${queryOf({ state, project, user, label, q, sort, totals: "true" })}`,
  };
}

/** Why the list is empty, and what to do. */
function Nothing({ filter, totals }: { filter: JobsFilter; totals: Totals }) {
  const set = Object.values(filter).filter((value) => value !== undefined);
  if (set.length === 0) {
    return (
      <Empty>
        No job has been submitted yet. Submit one: <code>headway submit job.yaml</code>
      </Empty>
    );
  }
  const others = Object.values(totals?.by_state ?? {}).reduce((sum, jobs) => sum + jobs, 0);
  return (
    <Empty>
      No job is like that.{" "}
      {filter.state !== undefined && others > 0 ? `The state hides ${others} that the other filters admit. ` : ""}
      <Link to="/jobs" search={(before) => (others > 0 ? { ...before, state: undefined } : { at: before.at })} resetScroll={false}>
        {others > 0 ? "Show all states" : "Clear filters"}
      </Link>
    </Empty>
  );
}
