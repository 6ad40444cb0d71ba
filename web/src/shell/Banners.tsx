// What stops the cluster or the page from being believed: told above every page, with what it costs.

import { Link } from "@tanstack/react-router";
import { ApiError, type AttentionItem, type Overview } from "../api/client";
import { useConnection } from "../api/live";
import type { Asked } from "../parts/Panel";
import { useNow } from "../lib/clock";
import { clock, count, duration } from "../lib/format";
import { STANDING, idleGpus, planningStands } from "../lib/incident";

/** An overview older than this tells of a database or a server that is away. */
const SILENT_MS = 8_000;
const MOST = 3;

export function Banners({ overview }: { overview: Asked<Overview> }) {
  const { data, error } = overview;
  const connection = useConnection();
  useNow();
  const over = error instanceof ApiError && error.status === 401;
  const silent = data !== undefined && Date.now() - overview.dataUpdatedAt > SILENT_MS;
  return (
    <div data-testid="banners">
      {over ? (
        <div className="banner" role="alert">
          Your session is over. <a href={location.pathname + location.search}>Log in again</a>
        </div>
      ) : error || silent ? (
        <div className="banner bad-ground" role="alert">
          The server does not answer{error && `: ${error.message}`}. {data && <>What is shown is of {clock(overview.dataUpdatedAt)}; actions may be refused.</>}
        </div>
      ) : (
        connection === "lost" && (
          <div className="banner" role="status">
            Reconnecting: what is shown is asked for every few seconds.
          </div>
        )
      )}
      {data && <Standby overview={data} />}
      {data && <Planning overview={data} />}
      {data && <Critical items={data.attention} />}
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
    <div className="banner bad-ground" role="alert" data-testid="planning-stands">
      <strong>{stands.headline}</strong>{" "}
      {stands.ageSeconds !== undefined && <>The newest plan is {duration(stands.ageSeconds)} old. </>}
      {count(idle)} of {count(overview.gpus_healthy)} healthy GPUs are idle: {(idle / 60).toFixed(1)} GPU-hours are lost every minute.{" "}
      <Link to="/plan">Plan</Link>
    </div>
  );
}

function Critical({ items }: { items: AttentionItem[] }) {
  const critical = items.filter((item) => item.severity === "critical" && !STANDING.has(item.kind));
  if (critical.length === 0) return null;
  return (
    <div className="banner bad-ground" role="alert">
      {critical.slice(0, MOST).map((item) => (
        <div key={item.kind + (item.node_id ?? item.job_id ?? item.plan_id ?? item.headline)}>
          <strong>{item.headline}</strong> <span>{item.next_step}</span>
        </div>
      ))}
      {critical.length > MOST && <Link to="/">and {critical.length - MOST} more</Link>}
    </div>
  );
}
