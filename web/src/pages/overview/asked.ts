// What the overview asks of the server: the cluster's figures over a window, where its GPU-time went, and what happened last.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { ApiError, api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";
import { WINDOWS, type WindowName, spanOf } from "../../parts/WindowPicker";

type Schemas = components["schemas"];
export type ClusterPoint = Schemas["ClusterPoint"];
export type Usage = Schemas["Usage"];
export type GoodputLine = Schemas["GoodputLine"];

/** Figures are kept once a minute: whoever asks more often hears the same. */
export const FIGURES_SECONDS = 60;
/** What is held against a window is over, and changes slowly. */
const BEFORE_MS = 300_000;

export interface Figures {
  /** Where the window ends. */
  at: string;
  stepSeconds: number;
  /** Of the window, and of as long a time before it. */
  points: ClusterPoint[];
  before: ClusterPoint[];
}

/**
 * The cluster's figures over a window and over the one before it. The key is none that the stream outdates: a message a second would have a
 * day asked anew.
 */
export function useFigures(window: WindowName, enabled: boolean) {
  return useQuery({
    queryKey: ["figures", window],
    queryFn: () => figures(window),
    enabled,
    refetchInterval: FIGURES_SECONDS * 1_000,
    placeholderData: keepPreviousData,
  });
}

async function figures(window: WindowName): Promise<Figures> {
  const { seconds, step, stepSeconds, twice } = WINDOWS[window];
  const ask = async (length: string) => {
    const answer = await unwrap(api.GET("/api/v1/overview", { params: { query: { window: length, step } } }));
    return answer as Schemas["Overview"];
  };
  // Where the past is not kept for so long there is nothing to hold the window against.
  const { at, series } = await ask(twice).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 400) return ask(window);
    throw error;
  });
  const begins = Math.floor((Date.parse(at) / 1_000 - seconds) / stepSeconds) * stepSeconds * 1_000;
  const all = series?.points ?? [];
  return {
    at,
    stepSeconds,
    points: all.filter((point) => Date.parse(point.at) >= begins),
    before: all.filter((point) => Date.parse(point.at) < begins),
  };
}

/** How long jobs waited that got their first GPUs within a window. */
export function useWaits(window: WindowName) {
  return useQuery({
    queryKey: ["waits", window],
    queryFn: async () => {
      const answer = await unwrap(api.GET("/api/v1/overview", { params: { query: { window, step: window, waits: true } } }));
      return (answer as Schemas["Overview"]).series?.waits ?? null;
    },
    refetchInterval: FIGURES_SECONDS * 1_000,
  });
}

/** Where the GPU-time of a window went, by cause, in all and step by step. `enabled` once the server's clock is known. */
export function useLedger(window: WindowName, at: string | undefined, enabled: boolean) {
  return useQuery({
    queryKey: ["ledger", window, at],
    queryFn: () => {
      const query = { ...spanOf(window, at), group_by: "cause", step: WINDOWS[window].step };
      return unwrap(api.GET("/api/v1/usage", { params: { query } })) as Promise<Usage>;
    },
    enabled,
    refetchInterval: at ? false : FIGURES_SECONDS * 1_000,
    placeholderData: keepPreviousData,
  });
}

/** The same in all, of as long a time before the window. */
export function useLedgerBefore(window: WindowName, at: string | undefined, enabled: boolean) {
  return useQuery({
    queryKey: ["ledger-before", window, at],
    queryFn: () => {
      const { from: to } = spanOf(window, at);
      const query = { from: spanOf(window, to).from, to, group_by: "cause" };
      return unwrap(api.GET("/api/v1/usage", { params: { query } })) as Promise<Usage>;
    },
    enabled,
    staleTime: BEFORE_MS,
    refetchInterval: at ? false : BEFORE_MS,
    placeholderData: keepPreviousData,
  });
}

/** The newest events of some kinds, or the newest before a past moment. */
export function useNewest(verb: string, limit: number, at: string | undefined) {
  return useQuery({
    queryKey: ["events", "newest", verb, limit, at],
    queryFn: () => unwrap(api.GET("/api/v1/events", { params: { query: { verb, limit, ...(at ? { until: at } : {}) } } })),
    refetchInterval: at ? false : 15_000,
    placeholderData: keepPreviousData,
  });
}

/** Jobs that held GPUs at a past moment. */
export function usePastHolders(at: string, limit: number) {
  return useQuery({
    queryKey: ["past-jobs", at, limit],
    queryFn: () => {
      const query = { at, state: "starting,running,stopping", limit };
      return unwrap(api.GET("/api/v1/jobs", { params: { query } })) as Promise<Schemas["PastJobList"]>;
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** How many points a line in a row has. */
const SPARK_POINTS = 48;

export interface Sparks {
  from: string;
  to: string;
  stepSeconds: number;
  byJob: Map<string, GoodputLine>;
}

/** Goodput of a few jobs over the window, for lines in rows. */
export function useSparks(jobs: readonly string[], window: WindowName) {
  // In the order of ids: rows that change places ask for nothing new.
  const ids = [...jobs].sort().join(",");
  return useQuery({
    queryKey: ["sparks", ids, window],
    queryFn: async (): Promise<Sparks> => {
      const minutes = Math.ceil(WINDOWS[window].seconds / SPARK_POINTS / 60);
      const query = { ...spanOf(window, undefined), jobs: ids, group: "job", step: `${minutes}m` };
      const { history } = await unwrap(api.GET("/api/v1/goodput", { params: { query } }));
      const lines = (history?.series ?? []).map((line): [string, GoodputLine] => [line.job_id ?? "", line]);
      return { from: history?.from ?? "", to: history?.to ?? "", stepSeconds: history?.step_seconds ?? 60, byJob: new Map(lines) };
    },
    enabled: ids !== "",
    refetchInterval: FIGURES_SECONDS * 1_000,
    placeholderData: keepPreviousData,
  });
}
