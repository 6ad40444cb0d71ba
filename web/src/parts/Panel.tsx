// A titled box that shows the state of what it is made from: loading, fresh, old, failed, denied, gone. Old data stays while new is fetched or fails.

import { Skeleton } from "@mantine/core";
import { type ReactNode, useEffect, useState } from "react";
import { ApiError } from "../api/client";
import { useNow } from "../lib/clock";
import { clock, duration } from "../lib/format";
import "./panel.css";

/** What a panel needs of a query of TanStack's. */
export interface Asked<T> {
  data: T | undefined;
  error: Error | null;
  dataUpdatedAt: number;
  isFetching: boolean;
  refetch: () => unknown;
}

interface Props<T> {
  title: string;
  /** Beside the title: a unit, "N of M". */
  note?: ReactNode;
  id?: string;
  className?: string;
  /** Right of the title: buttons, filters. */
  tools?: ReactNode;
  asked: Asked<T>;
  /** Data older than three times this is told as old. */
  everySeconds?: number;
  /** Of the skeleton. */
  height?: number;
  children: (data: T) => ReactNode;
}

export function Panel<T>({ title, note, id, className = "", tools, asked, everySeconds = 5, height = 120, children }: Props<T>) {
  const { data, error } = asked;
  return (
    <section className={`panel ${className}`} id={id} aria-label={title} data-testid={id && `panel-${id}`}>
      <header>
        <h2>{title}</h2>
        {note && <span className="muted">{note}</span>}
        <span className="space" />
        {tools}
        {data !== undefined && <Age at={asked.dataUpdatedAt} everySeconds={everySeconds} failed={error !== null} />}
      </header>
      {error && <Failed error={error} asked={asked} />}
      {data !== undefined ? (
        <div className={error ? "panel-old" : undefined}>{children(data)}</div>
      ) : (
        !error && <Loading height={height} />
      )}
    </section>
  );
}

/** A box around what needs nothing of its own. */
export function Box({ title, note, id, className = "", tools, children }: Omit<Props<never>, "asked" | "children"> & { children: ReactNode }) {
  return (
    <section className={`panel ${className}`} id={id} aria-label={title} data-testid={id && `panel-${id}`}>
      <header>
        <h2>{title}</h2>
        {note && <span className="muted">{note}</span>}
        <span className="space" />
        {tools}
      </header>
      {children}
    </section>
  );
}

function Age({ at, everySeconds, failed }: { at: number; everySeconds: number; failed: boolean }) {
  useNow();
  const age = Math.max(0, (Date.now() - at) / 1_000);
  const old = failed || age > 3 * everySeconds;
  if (!old && age < 10) return null;
  return (
    <span className={old ? "warn nowrap" : "muted nowrap"} title={`asked at ${clock(at)}`}>
      {duration(age)} old
    </span>
  );
}

/** The layout's skeleton, after 150 ms: what comes at once flashes nothing. */
export function Loading({ height }: { height: number }) {
  const [waited, setWaited] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setWaited(true), 150);
    return () => clearTimeout(timer);
  }, []);
  return waited ? <Skeleton height={height} role="status" aria-label="loading" /> : <div style={{ height }} />;
}

export function Failed({ error, asked }: { error: Error; asked?: Pick<Asked<unknown>, "refetch" | "isFetching"> }) {
  const status = error instanceof ApiError ? error.status : undefined;
  const problem = error instanceof ApiError ? error.problem : undefined;
  const words =
    status === 403 ? "Not for your role" : status === 404 ? "Not here" : status === undefined ? "No answer" : "Failed";
  return (
    <p className="failed" role="alert">
      <strong>{words}:</strong> {error.message}
      {problem?.request_id && <span className="muted"> (request {problem.request_id})</span>}{" "}
      {asked && status !== 403 && status !== 404 && (
        <button className="link" onClick={() => void asked.refetch()} disabled={asked.isFetching}>
          Try again
        </button>
      )}
    </p>
  );
}

/** Why there is nothing, and what to do. */
export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty muted">{children}</p>;
}
