// What the timeline asks: lanes page by page, the cluster's figures above them, and faults, which are drawn as notches.

import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type Overview, api, unwrap } from "../../api/client";
import { serverNow } from "../../lib/clock";
import { FAULTS } from "../events/verbs";
import { type Span, type Wanted, spanAt, until } from "./span";

export type Group = "job" | "node";

const LANES = 100;
/** A span that follows the present is asked for so often. */
export const LIVE_SECONDS = 15;
const FIGURES_MS = 60_000;
const KEPT_MS = 60_000;
/** Of faults the newest so many are marked. */
const MOST_FAULTS = 400;
const MINUTE = 60_000;
/** Points of a strip: as many as can be told apart, and the most that the server gives. */
const POINTS = 300;
const MOST_POINTS = 1_500;

const iso = (at: number) => new Date(at).toISOString();

interface Place {
  cursor: string;
  from: string;
  to: string;
}

/** Whether what a span shows is still going on. */
export function changes(wanted: Wanted, at: string | undefined): boolean {
  return !at && (wanted.kind === "live" || wanted.span.to > serverNow());
}

/** `at`: of a past moment; what comes after it is not asked for. */
export function useTimeline(group: Group, project: string | undefined, wanted: Wanted, at: string | undefined) {
  return useInfiniteQuery({
    queryKey: ["timeline", group, project, wanted, at],
    queryFn: ({ pageParam }) => {
      const span = until(spanAt(wanted, at ? Date.parse(at) : serverNow(), at !== undefined), at);
      // Further pages are of the same span as the first, to the letter.
      const place = pageParam ?? { from: iso(span.from), to: iso(span.to) };
      const query = { group, limit: LANES, ...(project ? { project } : {}), ...place };
      return unwrap(api.GET("/api/v1/timeline", { params: { query } }));
    },
    initialPageParam: undefined as Place | undefined,
    getNextPageParam: (last) => (last.next_cursor ? { cursor: last.next_cursor, from: last.from, to: last.to } : undefined),
    refetchInterval: () => changes(wanted, at) && LIVE_SECONDS * 1_000,
    staleTime: LIVE_SECONDS * 1_000,
    gcTime: KEPT_MS,
    placeholderData: keepPreviousData,
  });
}

/** What broke within a span, newest first, and whether there was more. */
export function useFaults(span: Span | undefined, project: string | undefined) {
  return useQuery({
    queryKey: ["timeline-faults", span, project],
    queryFn: async () => {
      const { from, to } = span ?? { from: 0, to: 0 };
      const query = { verb: FAULTS.join(","), since: iso(from), until: iso(to), limit: MOST_FAULTS, ...(project ? { project } : {}) };
      const { items, next_cursor } = await unwrap(api.GET("/api/v1/events", { params: { query } }));
      return { items, more: next_cursor != null };
    },
    enabled: span !== undefined,
    gcTime: KEPT_MS,
    placeholderData: keepPreviousData,
  });
}

/** The cluster's figures since the span began: they are kept once a minute, and given until now. */
export function useFigures(span: Span | undefined) {
  // A live span moves on all the time; its figures are asked for once a minute.
  const from = span && Math.floor(span.from / MINUTE);
  const length = span && Math.round((span.to - span.from) / MINUTE);
  return useQuery({
    queryKey: ["timeline-figures", from, length],
    queryFn: async () => {
      const window = Math.max(1, Math.ceil(serverNow() / MINUTE - (from ?? 0)));
      const step = Math.max(1, Math.ceil((length ?? 0) / POINTS), Math.ceil(window / MOST_POINTS));
      const query = { window: `${window}m`, step: `${step}m` };
      const { series } = (await unwrap(api.GET("/api/v1/overview", { params: { query } }))) as Overview;
      return { stepSeconds: series?.step_seconds ?? 60, points: series?.points ?? [] };
    },
    enabled: from !== undefined && from * MINUTE < serverNow(),
    staleTime: FIGURES_MS,
    gcTime: KEPT_MS,
    placeholderData: keepPreviousData,
  });
}
