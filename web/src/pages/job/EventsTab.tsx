// What happened to the job, the newest first; of each event what led to it and what came of it.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import type { EventRecord } from "../../api/client";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, NodeLink, PlanLink } from "../../parts/Name";
import { Box, Close, Empty, Failed, Loading, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import { verbShown } from "../events/verbs";
import type { TabProps } from "./JobPage";
import { hasEnded, useChain, useJobEvents } from "./asks";
import { gather } from "./pages";
import { without } from "./words";

/** What people look for; the server takes twenty verbs at most. */
const GROUPS: Record<string, readonly string[]> = {
  moves: [
    ...["job.granted", "job.moved", "job.returned", "job.started", "job.training", "job.stopping", "job.preempted", "job.layout_changed"],
    ...["job.batch_changed", "job.batch_contradicted", "job.batch_taken_back", "job.batch_held"],
  ],
  failures: ["job.failed", "job.gang_broken", "job.hung", "job.mistaken", "job.straggler", "job.loss_spike", "job.loss_not_finite", "job.idle_gpus", "job.progress_silent"],
  people: [
    ...["job.submitted", "job.changed", "job.resized", "job.held", "job.released", "job.pinned", "job.unpinned", "job.requeued"],
    ...["job.cancel_requested", "job.cancelled", "job.checkpoint_requested"],
  ],
};

export default function EventsTab({ job, at }: TabProps) {
  const { q, event: asked } = useSearch({ from: "/jobs/$id" });
  const chosen = Number(asked) || undefined;
  const navigate = useNavigate();
  const group = q !== undefined && q in GROUPS ? q : undefined;
  const verbs = group && GROUPS[group]!.join(",");
  const events = useJobEvents(job, verbs, at);
  const columns = useMemo(() => columnsOf(job.name), [job.name]);
  const gathered = useMemo(() => gather(events), [events]);
  const choose = (seq: number | undefined) =>
    void navigate({ to: ".", search: (before) => ({ ...before, event: seq === undefined ? undefined : String(seq) }), resetScroll: false });
  const pick = (name: string | undefined) => void navigate({ to: ".", search: (before) => ({ ...before, q: name }), replace: true });
  return (
    <div className="grid">
      <div className={chosen === undefined ? "span-12" : "span-7"}>
        <Panel
          title="Events"
          id="job-events"
          note={gathered.data && (events.hasNextPage ? `the newest ${count(gathered.data.length)}; there are more` : `all ${count(gathered.data.length)}, the newest first`)}
          asked={gathered}
          everySeconds={hasEnded(job.state) || at ? Number.POSITIVE_INFINITY : 5}
          height={400}
          tools={
            <>
              <span className="row" role="group" aria-label="Which events">
                <button className="button" aria-pressed={group === undefined} onClick={() => pick(undefined)}>
                  all
                </button>
                {Object.keys(GROUPS).map((name) => (
                  <button key={name} className="button" aria-pressed={group === name} onClick={() => pick(name)}>
                    {name}
                  </button>
                ))}
              </span>
              <CopyAs command={`headway job events ${job.id}`} path={`/api/v1/jobs/${job.id}/events`} />
            </>
          }
        >
          {(items) =>
            items.length === 0 ? (
              <Empty>
                {group ? `No ${group} among its events. ` : "Nothing has happened to it yet. "}
                {group && (
                  <button className="link" onClick={() => pick(undefined)}>
                    Show all events
                  </button>
                )}
              </Empty>
            ) : (
              <>
                <DataTable
                  label={`Events of ${job.name}`}
                  rows={items}
                  columns={columns}
                  keyOf={(event) => String(event.seq)}
                  onOpen={(event) => choose(event.seq)}
                  selected={chosen === undefined ? undefined : String(chosen)}
                  testId="job-events"
                />
                {events.hasNextPage && (
                  <button className="button" disabled={events.isFetchingNextPage} onClick={() => void events.fetchNextPage()}>
                    {events.isFetchingNextPage ? "reading …" : "Earlier events"}
                  </button>
                )}
              </>
            )
          }
        </Panel>
      </div>
      {chosen !== undefined && (
        <div className="span-5">
          <Chain job={job.id} event={chosen} onClose={() => choose(undefined)} />
        </div>
      )}
    </div>
  );
}

const columnsOf = (name: string): Column<EventRecord>[] => [
  { id: "at", header: "when", width: "128px", cell: (event) => <When at={event.at} /> },
  { id: "verb", header: "what", width: "184px", from: "tablet", cell: (event) => <Verb verb={event.verb} /> },
  { id: "message", header: "in words", cell: (event) => <span title={event.message}>{without(name, event.message)}</span> },
  { id: "actor", header: "who", width: "124px", from: "tablet", cell: (event) => <Who actor={event.actor} /> },
  { id: "of", header: "node, plan", width: "150px", from: "tablet", cell: (event) => <Named event={event} /> },
  {
    id: "chain",
    header: "cause",
    width: "72px",
    hint: "what led to it and what came of it",
    cell: (event) => (
      <Link to="/events" search={{ event: String(event.seq) }} title={`event ${event.seq}: what led to it and what came of it`}>
        chain
      </Link>
    ),
  },
];

function Verb({ verb }: { verb: string }) {
  const { glyph, tone } = verbShown(verb);
  return (
    <span className={`nowrap ${tone}`} title={verb}>
      <span aria-hidden>{glyph}</span> {verb.replace(/^job\./, "").replaceAll("_", " ")}
    </span>
  );
}

function Who({ actor }: { actor: string }) {
  const [kind, id] = actor.split(":");
  if (kind === "node" && id) return <NodeLink node={id} name={`node ${id.slice(-8)}`} />;
  return <span title={actor}>{actor.replace(/^user:/, "")}</span>;
}

function Named({ event }: { event: EventRecord }) {
  return (
    <>
      {event.node_id && <NodeLink node={event.node_id} name={event.node_name ?? event.node_id.slice(-8)} />} {event.plan_id && <PlanLink id={event.plan_id} />}
    </>
  );
}

/** What led to an event and what came of it, in the order of the log. */
function Chain({ job, event, onClose }: { job: string; event: number; onClose: () => void }) {
  const chain = useChain(event);
  return (
    <Box title="What led to it, what came of it" id="job-chain" tools={<Close onClose={onClose} />}>
      {chain.error && <Failed error={chain.error} asked={chain} />}
      {!chain.data && !chain.error && <Loading height={120} />}
      {chain.data?.length === 1 && <Empty>Nothing in the log led to it, and nothing has come of it yet.</Empty>}
      <ol className="job-chain">
        {chain.data?.map(({ event: one, because_of: cause }) => (
          <li key={one.seq} className={one.seq === event ? "chosen" : undefined} aria-current={one.seq === event ? "true" : undefined}>
            <When at={one.at} /> <Verb verb={one.verb} /> {one.message} <Named event={one} />
            {one.job_id && one.job_id !== job && <JobLink id={one.job_id} name={one.job_name ?? null} />}
            {cause != null && <span className="muted nowrap"> because of event {cause}</span>}
          </li>
        ))}
      </ol>
      <Link to="/events" search={{ event: String(event) }}>
        Drawn as a chain, among all events
      </Link>
    </Box>
  );
}
