// Reads a job's output while it is written. What comes is painted a few times a second, and the oldest goes where it is more than a browser should hold.

import { useEffect, useReducer, useRef, useState } from "react";
import { ApiError, type Problem, api } from "../../../api/client";
import { type Line, readLine } from "./lines";

export interface Wanted {
  id: string;
  generation: number;
  ranks: readonly number[];
  /** Only the last so many lines of each rank. */
  tail: number | undefined;
  /** Only what was written since, as the API takes moments. */
  since: string | undefined;
  follow: boolean;
}

export interface Feed {
  lines: Line[];
  /** How many of the oldest are not kept. */
  dropped: number;
  /** By rank: when it said its last, in milliseconds since 1970. */
  last: Map<number, number>;
  state: "reading" | "over" | "failed";
  error: Error | undefined;
}

const PAINT_MS = 300;
const MOST_LINES = 100_000;
/** They go in heaps, so that what was made from the lines is made anew seldom. */
const HEAP = 25_000;
/** A follower whose reply broke off asks again. */
const AGAIN_MS = 5_000;

function nothing(): Feed {
  return { lines: [], dropped: 0, last: new Map(), state: "reading", error: undefined };
}

/** The feed is another object where it was begun anew, and the version another where there is more of it. */
export function useFeed(wanted: Wanted): { feed: Feed; version: number; again: () => void } {
  const feed = useRef<Feed>(undefined);
  feed.current ??= nothing();
  const [version, paint] = useReducer((before: number) => before + 1, 0);
  const [tries, setTries] = useState(0);
  const key = JSON.stringify(wanted);

  useEffect(() => {
    const stop = new AbortController();
    const mine = nothing();
    feed.current = mine;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const paintSoon = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        paint();
      }, PAINT_MS);
    };
    paint();
    let retry: ReturnType<typeof setTimeout> | undefined;
    const asked = JSON.parse(key) as Wanted;
    read(asked, mine, paintSoon, stop.signal).then(
      () => {
        mine.state = "over";
        paintSoon();
      },
      (error: Error) => {
        if (stop.signal.aborted) return;
        mine.state = "failed";
        mine.error = error;
        paintSoon();
        const refused = error instanceof ApiError && error.status < 500;
        if (asked.follow && !refused) retry = setTimeout(() => setTries((before) => before + 1), AGAIN_MS);
      },
    );
    return () => {
      stop.abort();
      clearTimeout(timer);
      clearTimeout(retry);
    };
  }, [key, tries]);
  return { feed: feed.current, version, again: () => setTries((before) => before + 1) };
}

async function read(wanted: Wanted, into: Feed, onMore: () => void, signal: AbortSignal): Promise<void> {
  const { id, generation, ranks, tail, since, follow } = wanted;
  const query = { rank: ranks.join(","), generation, timestamps: true, ...(tail ? { tail } : {}), ...(since ? { since } : {}), ...(follow ? { follow } : {}) };
  const answer = await api.GET("/api/v1/jobs/{id}/logs", { params: { path: { id }, query }, parseAs: "stream", signal });
  if (!answer.response.ok) throw new ApiError(answer.response.status, (answer.error ?? {}) as Partial<Problem>);
  const body = answer.data as ReadableStream<Uint8Array> | null | undefined;
  if (!body) return;
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    parts.forEach((part) => keep(readLine(part, ranks), into));
    onMore();
  }
  if (rest !== "") keep(readLine(rest, ranks), into);
}

function keep(line: Line, into: Feed) {
  into.lines.push(line);
  if (line.rank !== null && line.at !== null) into.last.set(line.rank, Math.max(line.at, into.last.get(line.rank) ?? 0));
  if (into.lines.length < MOST_LINES + HEAP) return;
  into.lines = into.lines.slice(HEAP);
  into.dropped += HEAP;
}
