// What stops the cluster or the page from being believed: told above every page, with what it costs.

import { Link } from "@tanstack/react-router";
import { ApiError, type AttentionItem, type Overview } from "../api/client";
import { useConnection } from "../api/live";
import { useNow } from "../lib/clock";
import { clock, count, duration } from "../lib/format";
import { STANDING, idleGpus, planningStands } from "../lib/incident";
import { JobLink, NodeLink } from "../parts/Name";
import type { Asked } from "../parts/Panel";

/** So many kinds of critical things are told, and of each so many by name. */
const MOST_KINDS = 3;
const MOST_NAMES = 6;

/** `stale`: nothing new comes of the cluster. */
export function Banners({ overview, stale }: { overview: Asked<Overview>; stale: boolean }) {
  const { data, error } = overview;
  const connection = useConnection();
  const over = error instanceof ApiError && error.status === 401;
  return (
    <div data-testid="banners">
      {over ? (
        <div className="banner" role="alert">
          Your session is over. <a href={location.pathname + location.search}>Log in again</a>
        </div>
      ) : stale ? (
        <Stale error={error} at={overview.dataUpdatedAt} />
      ) : (
        connection === "lost" && (
          <div className="banner" role="status">
            Reconnecting: what is shown is asked for every few seconds.
          </div>
        )
      )}
      {data && <Standby overview={data} />}
      {data && <Planning overview={data} />}
      {data && <Critical overview={data} />}
    </div>
  );
}

/** What is shown is old: why, and how old. `at` is 0 where nothing is shown. */
function Stale({ error, at }: { error: Error | null; at: number }) {
  useNow();
  const silence = error ? `Nothing comes: ${error.message}` : "The server, or the database behind it, does not answer";
  const why = error instanceof ApiError ? `The server cannot tell how the cluster is: ${error.message}` : silence;
  return (
    <div className="banner bad-ground" data-testid="stale">
      <strong role="alert">{why}.</strong>{" "}
      {at > 0 && (
        <>
          What is shown is of {clock(at)}, {duration((Date.now() - at) / 1_000)} old; actions may be refused.{" "}
        </>
      )}
      It is asked again and again.
    </div>
  );
}

function Standby({ overview }: { overview: Overview }) {
  if (!overview.standby) return null;
  const { age_seconds: age, leader } = overview.standby;
  return (
    <div className="banner" role="status">
      This server stands by and shows what it knew {duration(age)} ago; it takes no changes.{" "}
      {leader && <a href={leader}>Go to the one that leads</a>}
    </div>
  );
}

/** Planning that stands still is told with what it costs: GPUs that are idle while jobs wait. */
function Planning({ overview }: { overview: Overview }) {
  const now = useNow();
  const stands = planningStands(overview, now);
  if (!stands) return null;
  const idle = idleGpus(overview);
  return (
    <div className="banner bad-ground" data-testid="planning-stands">
      <Alarm>Planning stands still.</Alarm>
      <strong>{stands.headline}.</strong> {stands.ageSeconds !== undefined && <>The newest plan is {duration(stands.ageSeconds)} old. </>}
      {idle === 0
        ? `None of ${count(overview.gpus_healthy)} healthy GPUs is idle.`
        : `${count(idle)} of ${count(overview.gpus_healthy)} healthy GPUs are idle: ${(idle / 60).toFixed(1)} GPU-hours are lost every minute.`}{" "}
      <Link to="/plan">Plan</Link>
    </div>
  );
}

function Critical({ overview }: { overview: Overview }) {
  const kinds = new Map<string, AttentionItem[]>();
  for (const item of overview.attention) {
    if (item.severity === "critical" && !(item.kind in STANDING)) kinds.set(item.kind, [...(kinds.get(item.kind) ?? []), item]);
  }
  if (kinds.size === 0) return null;
  const more = kinds.size - MOST_KINDS;
  return (
    <div className="banner bad-ground" data-testid="critical">
      {[...kinds].slice(0, MOST_KINDS).map(([kind, items]) => (
        <Kind key={kind} items={items} total={overview.attention_by_kind[kind] ?? items.length} />
      ))}
      {more > 0 && <Link to="/">and {more} more that are critical</Link>}
    </div>
  );
}

/** What is critical of one kind: the first in the server's words, and all by name. */
function Kind({ items, total }: { items: AttentionItem[]; total: number }) {
  const first = items[0]!;
  const named = items.filter((item) => item.name).slice(0, MOST_NAMES);
  return (
    <div>
      <Alarm>{`Critical: ${first.name ?? first.headline}${total > 1 ? ` and ${total - 1} more` : ""}.`}</Alarm>
      <strong>{first.headline}.</strong> {first.next_step} · {total > 1 && `${count(total)} in all: `}
      {named.map((item, index) => (
        <span key={item.name}>
          {index > 0 && ", "}
          <Named item={item} />
        </span>
      ))}
      {named.length > 0 && total > named.length && ` and ${count(total - named.length)} more`}
      {named.length === 0 && <Link to="/">Overview</Link>}
    </div>
  );
}

function Named({ item }: { item: AttentionItem }) {
  if (item.node_id) return <NodeLink node={item.node_id} name={item.name ?? null} />;
  if (item.job_id) return <JobLink id={item.job_id} name={item.name ?? null} />;
  return item.name;
}

/** Said once to who does not see the page: what is seen tells ages, and changes every second. */
function Alarm({ children }: { children: string }) {
  return (
    <span className="hidden-text" role="alert">
      {children}
    </span>
  );
}
