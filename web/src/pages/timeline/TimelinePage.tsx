// What jobs or nodes were doing when, what is predicted, and what broke: lanes of bars over a span that follows the present or stands.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { count } from "../../lib/format";
import { Clocked } from "../../parts/Clocked";
import { Empty, Panel } from "../../parts/Panel";
import { queryOf } from "../../lib/commands";
import { type Group, LIVE_SECONDS, changes, useFaults, useFigures, useTimeline } from "./asked";
import { Gantt } from "./Gantt";
import { Legend } from "./Legend";
import { type Mark, rowsOf } from "./rows";
import { type Span, type Wanted, until, wantedOf } from "./span";
import { Strips } from "./Strips";
import { Tools } from "./Tools";
import { Twin } from "./Twin";
import "./timeline.css";

/** How long after the last move the URL is told and the server asked. */
const SETTLED_MS = 300;
const NOTHING: never[] = [];

export default function TimelinePage() {
  const { at } = useSearch({ from: "/timeline" });
  return (
    <div data-testid="page-timeline">
      <Clocked at={at} height={620}>
        <Timeline />
      </Clocked>
    </div>
  );
}

function Timeline() {
  const { group = "job", from, to, project, at } = useSearch({ from: "/timeline" });
  const navigate = useNavigate({ from: "/timeline" });
  const wanted = useMemo(() => wantedOf(from, to), [from, to]);
  const timeline = useTimeline(group, project, wanted, at);
  const [asTable, setAsTable] = useState(false);
  const pages = timeline.data?.pages;
  const told = pages?.[0];
  // While lanes of the other kind are asked for those that are there go on being shown as what they are.
  const lanes: Group = (told?.group ?? group) === "node" ? "node" : "job";

  const settled = useMemo<Span | undefined>(
    () => (wanted.kind === "fixed" ? wanted.span : told && { from: Date.parse(told.from), to: Date.parse(told.to) }),
    [wanted, told?.from, told?.to],
  );
  const { span, move } = useMoved(wanted, settled, (next) => {
    const text = (moment: number) => new Date(moment).toISOString();
    void navigate({ search: (before) => ({ ...before, from: text(next.from), to: text(next.to) }), replace: true, resetScroll: false });
  });
  const follow = useCallback(
    (back?: string) => void navigate({ search: (before) => ({ ...before, from: back, to: undefined }), replace: true, resetScroll: false }),
    [navigate],
  );

  const over = useMemo(() => settled && until(settled, at), [settled, at]);
  const faults = useFaults(over, project);
  const figures = useFigures(over);
  const found = faults.data?.items ?? NOTHING;
  const now = at ? Date.parse(at) : told ? Date.parse(told.now) : 0;
  const ends = told ? Math.min(Date.parse(told.now), Date.parse(told.to)) : 0;
  const rows = useMemo(() => rowsOf(pages?.flatMap((page) => page.lanes) ?? NOTHING, ends, found), [pages, ends, found]);
  const most = useMemo(() => rows.reduce((best, row) => row.bars.reduce((max, bar) => Math.max(max, bar.gpus ?? 0), best), 1), [rows]);
  const marks = useMemo<Mark[]>(() => found.map((event) => ({ at: Date.parse(event.at), seq: event.seq, message: event.message })), [found]);
  const points = useMemo(() => (figures.data?.points ?? NOTHING).filter((point) => Date.parse(point.at) <= now), [figures.data, now]);
  const reservations = told?.reservations ?? NOTHING;
  const reserved = useMemo(() => byNode(reservations), [reservations]);
  const live = wanted.kind === "live" && !at;

  const notes = [
    rows.length > 0 && `${count(rows.length)} ${lanes === "job" ? "jobs" : "nodes"}${timeline.hasNextPage ? ", there are more" : ", all there are"}`,
    told?.aggregated,
    told?.left_out && "more plans, or more jobs on these nodes, than are told",
    faults.data?.more && `faults: the newest ${count(found.length)} alone`,
  ].filter(Boolean);
  const query = { group, project, limit: "200", from: settled && new Date(settled.from).toISOString(), to: settled && new Date(settled.to).toISOString() };
  return (
    <>
      <header className="page-head">
        <h1>Timeline</h1>
        <span className="muted">{at ? "what was, until the moment that is viewed" : live ? "follows the present; what is dashed is predicted" : "stands still; what is dashed is predicted"}</span>
      </header>
      <Tools {...{ group, from, to, project, at, span, asTable }} stands={wanted.kind === "fixed"} onSpan={move} onPresent={follow} onTable={() => setAsTable(!asTable)} />
      <Panel
        title={lanes === "job" ? "Jobs" : "Nodes"}
        id="timeline"
        note={notes.join(" · ")}
        asked={{ ...timeline, error: timeline.error ?? faults.error }}
        everySeconds={changes(wanted, at) ? LIVE_SECONDS : Number.POSITIVE_INFINITY}
        height={560}
      >
        {() => {
          if (!span) return null;
          if (rows.length === 0) return <Nothing group={lanes} project={project} />;
          if (asTable) return <Twin rows={rows} byNode={lanes === "node"} past={at !== undefined} reservations={reservations} plans={told?.plans ?? NOTHING} />;
          return (
            <>
              <Gantt
                rows={rows}
                span={span}
                now={now}
                until={at}
                most={most}
                byNode={lanes === "node"}
                reserved={reserved}
                summary={summary(rows.length, lanes, span)}
                onSpan={move}
                onNear={() => timeline.hasNextPage && !timeline.isFetchingNextPage && void timeline.fetchNextPage()}
                onPresent={follow}
                onTable={() => setAsTable(true)}
                above={(gutter, width) => (
                  <Strips
                    {...{ span, gutter, width, reservations }}
                    plans={told?.plans ?? NOTHING}
                    faults={marks}
                    points={points}
                    stepSeconds={figures.data?.stepSeconds ?? 60}
                    noFigures={figures.error?.message ?? (figures.isLoading ? "asking …" : undefined)}
                  />
                )}
              />
              <Legend byNode={lanes === "node"} most={most} />
            </>
          );
        }}
      </Panel>
      <div className="row timeline-foot">
        {timeline.hasNextPage && (
          <button className="button" disabled={timeline.isFetchingNextPage} onClick={() => void timeline.fetchNextPage()}>
            {timeline.isFetchingNextPage ? "Reading …" : "More lanes"}
          </button>
        )}
        <a className="button" href={`/api/v1/timeline${queryOf(query)}`} download="timeline.json" title="the first 200 lanes">
          As JSON
        </a>
      </div>
    </>
  );
}

/** A span as it is being moved: shown at once, told when it has come to rest. */
function useMoved(wanted: Wanted, settled: Span | undefined, onSettled: (span: Span) => void) {
  const [moving, setMoving] = useState<Span>();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const sent = useRef<Span>(undefined);
  const tell = useRef(onSettled);
  tell.current = onSettled;
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    const own = wanted.kind === "fixed" && near(wanted.span, sent.current) ? wanted.span : undefined;
    // What was told has come about; who has moved on meanwhile is not held up. Somebody else's span ends all moving.
    if (!own) clearTimeout(timer.current);
    setMoving((now) => (own && !near(own, now) ? now : undefined));
  }, [wanted]);
  const move = useCallback((span: Span) => {
    setMoving(span);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      sent.current = span;
      tell.current(span);
    }, SETTLED_MS);
  }, []);
  return { span: moving ?? settled, move };
}

/** Equal but for what is lost where milliseconds are whole. */
function near(one: Span, other: Span | undefined): boolean {
  return other !== undefined && Math.abs(one.from - other.from) < 2 && Math.abs(one.to - other.to) < 2;
}

function Nothing({ group, project }: { group: Group; project: string | undefined }) {
  if (group === "node") return <Empty>No node was there in this span. Look at another one, or see how nodes join under Settings.</Empty>;
  if (project) {
    return (
      <Empty>
        No job of “{project}” waited or ran in this span.{" "}
        <Link from="/timeline" to="/timeline" search={(before) => ({ ...before, project: undefined })}>
          Show all projects
        </Link>
      </Empty>
    );
  }
  return (
    <Empty>
      No job waited or ran in this span. Look at a longer one, or submit one: <code>headway submit job.yaml</code>.
    </Empty>
  );
}

function summary(lanes: number, group: Group, { from, to }: Span): string {
  const what = group === "job" ? "jobs: when each waited, started, ran and stopped, and with how many GPUs" : "nodes: who held their GPUs, and when they were out of service";
  return `${lanes} ${what}, from ${new Date(from).toLocaleString()} to ${new Date(to).toLocaleString()}. The same stands in the table.`;
}

/** Reservations by the names of their nodes. */
function byNode(reservations: readonly { name: string; from: string; until: string; nodes: string[] }[]) {
  const found = new Map<string, { from: number; to: number; name: string }[]>();
  for (const { name, from, until, nodes } of reservations) {
    for (const node of nodes) {
      const those = found.get(node) ?? [];
      those.push({ from: Date.parse(from), to: Date.parse(until), name });
      found.set(node, those);
    }
  }
  return found;
}
