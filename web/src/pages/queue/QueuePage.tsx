// What waits, in the order in which it is expected to start, and why; beside it, of one job, what would change that.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type KeyboardEvent, useRef } from "react";
import { useOverview } from "../../api/queries";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { DataTable } from "../../parts/DataTable";
import { More, useWanted } from "../../parts/More";
import { Empty, Panel } from "../../parts/Panel";
import { commandOf, queryOf } from "../../lib/commands";
import { escapes } from "../../shell/keys";
import { ALL, BESIDE } from "./columns";
import { Explain } from "./Explain";
import { Filters } from "./Filters";
import { PastQueue } from "./PastQueue";
import { type Queue, type QueueFilter, useQueue } from "./queries";
import { RoomStrip } from "./RoomStrip";
import "./queue.css";

export default function QueuePage() {
  const { job, at, ...filter } = useSearch({ from: "/queue" });
  return at === undefined ? (
    <PresentQueue />
  ) : (
    <div data-testid="page-queue" className="stack queue">
      <header className="page-head">
        <h1>Queue</h1>
      </header>
      <PastQueue at={at} job={job} filter={filter} />
    </div>
  );
}

function PresentQueue() {
  const { job, at: _, ...filter } = useSearch({ from: "/queue" });
  const navigate = useNavigate({ from: "/queue" });
  const { wanted, more } = useWanted(JSON.stringify(filter));
  const queue = useQueue(filter, wanted);
  const { data } = queue;
  // What is opened by hand takes the focus; what a link opens leaves it where it is.
  const byHand = useRef(false);
  const grid = useRef<HTMLDivElement>(null);

  const change = (to: QueueFilter) => void navigate({ search: (before) => ({ ...before, ...to }), resetScroll: false });
  const open = (id: string) => {
    byHand.current = true;
    // From row to row is no step of the way back.
    void navigate({ search: (before) => ({ ...before, job: id }), replace: job !== undefined, resetScroll: false });
  };
  const close = () => {
    const row = grid.current?.querySelector<HTMLElement>('tr[aria-selected="true"]');
    void navigate({ search: (before) => ({ ...before, job: undefined }), resetScroll: false });
    row?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    if (job !== undefined && escapes(event)) close();
  };

  return (
    <div data-testid="page-queue" className="stack queue">
      <header className="page-head">
        <h1>Queue</h1>
        <Facts room={data?.room} />
      </header>
      <RoomStrip queue={queue} narrowed={narrowed(filter)} type={filter.type} onType={(type) => change({ type })} />
      <Filters filter={filter} choices={data?.choices} types={(data?.room ?? []).map((one) => one.gpu_type)} onChange={change} />
      <div className="grid" ref={grid} onKeyDown={onKey}>
        <Panel
          title="Waiting jobs"
          id="waiting"
          className={job === undefined ? "span-12" : "span-7"}
          asked={queue}
          height={420}
          tools={<CopyAs {...asCommand(filter)} />}
        >
          {(list) =>
            list.items.length === 0 ? (
              <Nothing list={list} filter={filter} />
            ) : (
              <div aria-busy={queue.isPlaceholderData}>
                <DataTable
                  label="Waiting jobs, those expected to start first on top"
                  testId="queue-table"
                  rows={list.items}
                  columns={job === undefined ? ALL : BESIDE}
                  keyOf={(row) => row.job_id}
                  onOpen={(row) => open(row.job_id)}
                  selected={job}
                />
                <More
                  shown={list.items.length}
                  total={list.totals.jobs}
                  of="jobs"
                  further={list.next_cursor != null}
                  more={more}
                  busy={queue.isPlaceholderData}
                />
              </div>
            )
          }
        </Panel>
        {job !== undefined && (
          <div className="span-5 queue-side">
            <Explain
              key={job}
              id={job}
              place={data?.items.find((row) => row.job_id === job)?.place}
              byHand={byHand.current}
              onClose={close}
            />
          </div>
        )}
      </div>
    </div>
  );
}

/** By anything but the GPU type. */
function narrowed({ type: _, ...others }: QueueFilter): boolean {
  return Object.values(others).some((value) => value !== undefined);
}

function asCommand({ project, user, code, type, q }: QueueFilter): { command: string; path: string } {
  const options = { project, user, code, type };
  return { command: commandOf("headway queue list", { ...options, name: q }), path: `/api/v1/queue${queryOf({ ...options, q })}` };
}

/** Of the whole queue, whatever is filtered. */
function Facts({ room }: { room: Queue["room"] }) {
  const { data } = useOverview();
  if (!data) return null;
  const free = room?.reduce((sum, one) => sum + one.gpus_free, 0);
  return (
    <span className="muted" data-testid="queue-facts">
      {count(data.jobs_by_state.queued ?? 0)} waiting · {count(data.gpus_waited_for)} GPUs waited for at least
      {free !== undefined && ` · ${count(free)} free of ${count(data.gpus_healthy)} healthy`}
    </span>
  );
}

const NAMES = { project: "project", user: "owner", code: "reason", type: "GPU type", q: "part of the name" } as const;

/** Why the list is empty, and what to do. */
function Nothing({ list, filter }: { list: Queue; filter: QueueFilter }) {
  const { data: overview } = useOverview();
  const set = (Object.keys(NAMES) as (keyof typeof NAMES)[]).filter((name) => filter[name] !== undefined);
  if (set.length > 0) {
    const all = overview?.jobs_by_state.queued;
    const filters = set.map((name) => `the ${NAMES[name]} ${filter[name]}`).join(" and ");
    return (
      <Empty>
        {all === undefined ? "No job that waits" : `None of ${count(all)} jobs that wait`} has {filters}.{" "}
        <Link to="/queue" search={(before) => ({ job: before.job })} resetScroll={false}>
          Clear filters
        </Link>
      </Empty>
    );
  }
  const rooms = [...(list.room ?? [])].sort((one, other) => other.largest - one.largest);
  const best = rooms[0];
  return (
    <Empty>
      Nothing is waiting.{" "}
      {best && best.largest > 0
        ? `The largest job that would start now: ${best.largest} GPUs of ${best.gpu_type} (${best.gpus_free} are free).`
        : "Nothing is free either."}{" "}
      Submit one: <code>headway submit job.yaml</code>
    </Empty>
  );
}
