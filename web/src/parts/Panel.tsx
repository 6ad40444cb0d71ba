// A titled box that shows the state of what it is made from: loading, fresh, old, failed, denied, gone. Old data stays while new is fetched or fails.

import { Skeleton } from "@mantine/core";
import { type ReactNode, useEffect, useState } from "react";
import { ApiError } from "../api/client";
import { useConnection } from "../api/live";
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
    <section className={`panel ${className}`} id={id} aria-label={title} data-testid={id && `panel-${id}`} data-dated={data === undefined || asked.dataUpdatedAt === 0 ? undefined : ""}>
      <header>
        <h2>{title}</h2>
        {note && <span className="muted">{note}</span>}
        {error && data !== undefined ? <FailedAnew error={error} asked={asked} /> : <span className="space" />}
        {tools}
        {data !== undefined && <Age at={asked.dataUpdatedAt} everySeconds={everySeconds} failed={error !== null} />}
      </header>
      {data !== undefined ? (
        <div className={error ? "panel-old" : undefined}>{children(data)}</div>
      ) : error ? (
        <Failed error={error} asked={asked} />
      ) : (
        <Loading height={height} />
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

/** The button that closes a panel, among its tools. */
export function Close({ onClose, hotkey }: { onClose: () => void; hotkey?: string }) {
  return (
    <button className="button" onClick={onClose} title={hotkey}>
      Close
    </button>
  );
}

/** How old the data is: told where that is not a matter of course. `at` is infinite for what does not grow old, and 0 where nothing has come. */
function Age({ at, everySeconds, failed }: { at: number; everySeconds: number; failed: boolean }) {
  const lost = useConnection() === "lost";
  useNow();
  const age = Math.max(0, (Date.now() - at) / 1_000);
  const old = failed || age > 3 * everySeconds;
  if (at === 0 || at === Number.POSITIVE_INFINITY || (!old && !lost && age < 10)) return null;
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
  return waited ? <Skeleton height={height} role="status" aria-label="loading" data-loading /> : <div style={{ height }} data-loading />;
}

interface FailedProps {
  error: Error;
  asked?: Pick<Asked<unknown>, "refetch" | "isFetching"> | undefined;
}

function problemOf(error: Error): { words: string; request: string | undefined; final: boolean } {
  const status = error instanceof ApiError ? error.status : undefined;
  const words = status === 403 ? "Not for your role" : status === 404 ? "Not here" : status === undefined ? "No answer" : "Failed";
  const request = error instanceof ApiError ? error.problem.request_id : undefined;
  return { words, request: request ?? undefined, final: status === 403 || status === 404 };
}

/** What was wrong, where nothing else can be shown. */
export function Failed({ error, asked }: FailedProps) {
  const { words, request, final } = problemOf(error);
  return (
    <p className="failed" role="alert">
      <strong>{words}:</strong> {error.message}
      {request && <span className="muted"> (request {request})</span>} {asked && !final && <Again {...asked} />}
    </p>
  );
}

/** What was wrong with asking anew, in the line of the title: what was known stays where it is. */
function FailedAnew({ error, asked }: FailedProps) {
  const { words, request, final } = problemOf(error);
  return (
    <span className="failed-anew bad" role="status">
      <span className="failed-why" title={`${error.message}${request ? ` (request ${request})` : ""}`}>
        <span aria-hidden>▲</span> {words}: {error.message}
      </span>
      {asked && !final && <Again {...asked} />}
    </span>
  );
}

function Again({ refetch, isFetching }: Pick<Asked<unknown>, "refetch" | "isFetching">) {
  return (
    <button className="link nowrap" onClick={() => void refetch()} disabled={isFetching}>
      Try again
    </button>
  );
}

/** Why there is nothing, and what to do. */
export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty muted">{children}</p>;
}
