// The log. What comes while somebody reads is counted and put by: rows move when the reader says so, never under the pointer.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type UIEvent, useEffect, useMemo, useRef } from "react";
import type { EventRecord } from "../../api/client";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { commandOf, queryOf } from "../../lib/commands";
import { Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import { singleKeys, typing } from "../../shell/keys";
import { ChainPanel } from "./ChainPanel";
import { Chip, Filters, JobChip, type Kind } from "./Filters";
import { type LogFilter, type News, useLog, useNews } from "./log";
import { Actor, Subjects } from "./Subjects";
import { GROUPS, KNOWN, groupOf, verbShown } from "./verbs";

const KINDS = [
  { kind: "verb", name: "verb", example: "job.moved, node.lost …" },
  { kind: "actor", name: "actor", example: "a user's name, or scheduler" },
  { kind: "job", name: "job", example: "a job's name or id" },
  { kind: "node", name: "node", example: "a node's name or id" },
] as const;
const HEIGHT = 640;
/** So near to the end of the list the next page is asked for. */
const NEAR = 400;
const LIVE_SECONDS = 5;

const COLUMNS: readonly Column<EventRecord>[] = [
  { id: "at", header: "When", width: "128px", cell: (event) => <When at={event.at} /> },
  { id: "verb", header: "What", width: "196px", from: "tablet", cell: (event) => <Verb verb={event.verb} /> },
  { id: "message", header: "In a sentence", cell: (event) => <span title={event.message}>{event.message}</span> },
  { id: "about", header: "About", width: "220px", from: "tablet", cell: (event) => <Subjects event={event} /> },
  { id: "actor", header: "By", width: "130px", from: "desktop", cell: (event) => <Actor actor={event.actor} event={event} /> },
];

function Verb({ verb }: { verb: string }) {
  const { glyph, tone } = verbShown(verb);
  return (
    <span className={`nowrap ${tone}`}>
      <span aria-hidden>{glyph}</span> {verb}
    </span>
  );
}

export function EventLog() {
  const { verb, actor, job, node, event, at } = useSearch({ from: "/events" });
  const navigate = useNavigate({ from: "/events" });
  const filter = useMemo<LogFilter>(() => ({ verb, actor, job, node, until: at }), [verb, actor, job, node, at]);
  const { log, rows, newest, take } = useLog(filter);
  const news = useNews(filter, at ? undefined : newest);
  const fresh = news.data?.items.length ?? 0;
  const list = useRef<HTMLDivElement>(null);
  const chosen = event !== undefined && /^\d{1,15}$/.test(event) ? Number(event) : undefined;

  const choose = (seq: number | undefined) =>
    void navigate({ search: (before) => ({ ...before, event: seq === undefined ? undefined : String(seq) }), replace: true, resetScroll: false });
  const show = (found: News) => {
    take(found);
    list.current?.querySelector(".data-scroll")?.scrollTo({ top: 0 });
  };

  const close = chosen === undefined ? undefined : () => choose(undefined);
  const keys = useRef({ news: news.data, show, close });
  keys.current = { news: news.data, show, close };
  useEffect(() => {
    const onKey = (pressed: KeyboardEvent) => {
      if (typing(pressed)) return;
      const { news: found, ...now } = keys.current;
      if (pressed.key === "Escape") return now.close?.();
      if (pressed.key === "." && singleKeys.get() && found && found.items.length > 0) {
        pressed.preventDefault();
        now.show(found);
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const onScroll = ({ target }: UIEvent) => {
    const box = target as HTMLElement;
    if (box.scrollHeight - box.scrollTop - box.clientHeight < NEAR && log.hasNextPage && !log.isFetchingNextPage) void log.fetchNextPage();
  };

  // How old the list is tells what is known of what has come since, not when its rows were read.
  const asked = { ...log, dataUpdatedAt: Math.max(log.dataUpdatedAt, news.dataUpdatedAt), error: log.error ?? news.error };
  return (
    <>
      <LogFilters filter={filter} />
      <div className={chosen === undefined ? undefined : "split"}>
        <Panel
          title={at ? "The log until then" : "The log"}
          id="log"
          note={log.hasNextPage ? `the newest ${count(rows.length)}; there are older ones` : `all ${count(rows.length)}`}
          tools={
            news.data && fresh > 0 ? (
              <button className="button primary" data-testid="events-new" onClick={() => news.data && show(news.data)}>
                {count(fresh)}
                {news.data.full && "+"} new, press <kbd>.</kbd>
              </button>
            ) : (
              news.data && <span className="muted">nothing new</span>
            )
          }
          asked={asked}
          everySeconds={at ? Number.POSITIVE_INFINITY : LIVE_SECONDS}
          height={HEIGHT}
        >
          {() =>
            rows.length > 0 ? (
              <div ref={list} onScrollCapture={onScroll}>
                <DataTable
                  label="Events, newest first"
                  testId="events-table"
                  rows={rows}
                  columns={COLUMNS}
                  keyOf={(row) => String(row.seq)}
                  onOpen={(row) => choose(row.seq)}
                  selected={chosen === undefined ? undefined : String(chosen)}
                  height={HEIGHT}
                />
              </div>
            ) : (
              <Nothing filter={filter} more={log.hasNextPage} />
            )
          }
        </Panel>
        {chosen !== undefined && <ChainPanel seq={chosen} onClose={() => choose(undefined)} />}
      </div>
      <div className="row events-foot">
        {log.hasNextPage && (
          <button className="button" onClick={() => void log.fetchNextPage()} disabled={log.isFetchingNextPage}>
            {log.isFetchingNextPage ? "Reading …" : "Older"}
          </button>
        )}
        <CopyAs command={commandOf("headway events", { ...filter })} path={`/api/v1/events${queryOf({ ...filter })}`} />
      </div>
    </>
  );
}

function Nothing({ filter, more }: { filter: LogFilter; more: boolean }) {
  const filtered = filter.verb ?? filter.actor ?? filter.job ?? filter.node;
  if (more) return <Empty>Nothing of that kind in what was looked through so far. “Older” looks further back.</Empty>;
  if (filtered === undefined) return <Empty>Nothing has happened yet. Events come as soon as a node joins or a job is submitted.</Empty>;
  return (
    <Empty>
      The log has nothing that these filters admit.{" "}
      <Link to="/events" search={(before) => ({ at: before.at })}>
        Show all of it
      </Link>
    </Empty>
  );
}

/** Groups of verbs to choose from, what is set as chips, and a field for more. */
function LogFilters({ filter }: { filter: LogFilter }) {
  const navigate = useNavigate({ from: "/events" });
  const set = (changes: Omit<LogFilter, "until">) => void navigate({ search: (before) => ({ ...before, ...changes }), replace: true, resetScroll: false });
  const verbs = filter.verb?.split(",") ?? [];
  const group = groupOf(filter.verb);
  const add = (kind: Kind, value: string) => {
    if (kind !== "verb") return set({ [kind]: value });
    if (!value.includes(".")) throw new Error(`“${value}” is nothing that happens: verbs are like job.moved or node.lost.`);
    set({ verb: [...new Set([...(group ? [] : verbs), value])].join(",") });
  };
  return (
    <section className="events-head" aria-label="Filters">
      <div className="row" role="group" aria-label="What happened">
        <button className="button" aria-pressed={filter.verb === undefined} onClick={() => set({ verb: undefined })}>
          everything
        </button>
        {GROUPS.map((one) => (
          <button
            key={one.name}
            className="button"
            title={one.verbs.join(", ")}
            aria-pressed={group === one}
            onClick={() => set({ verb: group === one ? undefined : one.verbs.join(",") })}
          >
            {one.name}
          </button>
        ))}
      </div>
      <Filters kinds={KINDS} known={KNOWN} onAdd={async (kind, value) => add(kind, value)}>
        {!group &&
          verbs.map((one) => (
            <Chip key={one} kind="verb" onRemove={() => set({ verb: verbs.filter((other) => other !== one).join(",") || undefined })}>
              {one}
            </Chip>
          ))}
        {filter.actor && (
          <Chip kind="actor" onRemove={() => set({ actor: undefined })}>
            {filter.actor}
          </Chip>
        )}
        {filter.job && <JobChip id={filter.job} onRemove={() => set({ job: undefined })} />}
        {filter.node && (
          <Chip kind="node" onRemove={() => set({ node: undefined })}>
            {filter.node}
          </Chip>
        )}
      </Filters>
    </section>
  );
}
