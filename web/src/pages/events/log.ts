// What the events page asks: the log, page by page, in rows that stay where they are; what has come since, put by until somebody wants it; and
// chains of causes. The log's own key is none that the stream outdates: only what has come since is asked for anew.

import { type InfiniteData, keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { type EventRecord, type Overview, api, unwrap } from "../../api/client";
import { POLL_MS } from "../../api/queries";

const PAGE = 200;
/** So many new events are put by; whoever wants them then begins at the top again. */
const MOST_NEW = 500;
const CHAIN_MS = 15_000;

export interface LogFilter {
  verb?: string | undefined;
  actor?: string | undefined;
  job?: string | undefined;
  node?: string | undefined;
  /** Before this moment. */
  until?: string | undefined;
}

interface LogPage {
  items: EventRecord[];
  next_cursor?: string | null | undefined;
  /** The newest event of all when the page was asked for, whatever the filter admits: what comes later is new. */
  head: number;
}

export interface News {
  /** Oldest first. */
  items: EventRecord[];
  /** How far the log has been looked through. */
  last: number;
  full: boolean;
}

/** The newest event that the shell has heard of. */
function headOf(overview: Overview | undefined): number {
  return overview?.seq ?? 0;
}

const logKey = (filter: LogFilter) => ["event-log", filter] as const;

export function useLog(filter: LogFilter) {
  const queries = useQueryClient();
  const log = useInfiniteQuery({
    queryKey: logKey(filter),
    queryFn: async ({ pageParam, client }): Promise<LogPage> => {
      const head = headOf(client.getQueryData<Overview>(["overview", "now"]));
      const query = { ...filter, limit: PAGE, ...(pageParam === undefined ? {} : { cursor: pageParam }) };
      return { ...(await unwrap(api.GET("/api/v1/events", { params: { query } }))), head };
    },
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (last) => (last.next_cursor ? Number(last.next_cursor) : undefined),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    placeholderData: keepPreviousData,
  });
  const pages = log.data?.pages;
  const rows = useMemo(() => pages?.flatMap((page) => page.items) ?? [], [pages]);
  const newest = pages && Math.max(pages[0]?.head ?? 0, rows[0]?.seq ?? 0);

  /** Puts what has come since above what is shown, or begins at the top where that was too much to keep. */
  const take = (news: News) => {
    const first: LogPage = { items: [...news.items].reverse(), head: news.last };
    queries.setQueryData<InfiniteData<LogPage, number | undefined>>(logKey(filter), (before) => {
      if (!before) return before;
      if (news.full) return { pages: before.pages.slice(0, 1), pageParams: before.pageParams.slice(0, 1) };
      return { pages: [first, ...before.pages], pageParams: [undefined, ...before.pageParams] };
    });
    if (news.full) void log.refetch();
  };
  return { log, rows, newest: log.isPlaceholderData ? undefined : newest, take };
}

/** What the filter admits of what has come since; nothing is asked while that is not known. */
export function useNews(filter: LogFilter, since: number | undefined) {
  const key = ["events", "news", filter, since] as const;
  return useQuery<News>({
    queryKey: key,
    enabled: since !== undefined,
    refetchInterval: ({ state }) => (state.data?.full ? false : POLL_MS),
    queryFn: async ({ client }) => {
      const known = client.getQueryData<News>(key) ?? { items: [], last: since ?? 0, full: false };
      if (known.full) return known;
      const head = headOf(client.getQueryData<Overview>(["overview", "now"]));
      const query = { ...filter, after: known.last, limit: PAGE };
      const { items, next_cursor } = await unwrap(api.GET("/api/v1/events", { params: { query } }));
      const all = [...known.items, ...items];
      const last = next_cursor ? Number(next_cursor) : Math.max(known.last, head, items[items.length - 1]?.seq ?? 0);
      return { items: all, last, full: all.length >= MOST_NEW };
    },
  });
}

/** What led to an event and what came of it. */
export function useChain(seq: number) {
  return useQuery({
    queryKey: ["event-chain", seq],
    queryFn: () => unwrap(api.GET("/api/v1/events/{id}/chain", { params: { path: { id: seq } } })),
    refetchInterval: CHAIN_MS,
    placeholderData: keepPreviousData,
  });
}

/** What a job is called, for a filter that names it by its id. */
export function useJobName(id: string) {
  return useQuery({
    queryKey: ["job-name", id],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs/{id}", { params: { path: { id } } }))).name,
    staleTime: Number.POSITIVE_INFINITY,
  });
}
