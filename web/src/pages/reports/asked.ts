// What reports ask: where GPU-time went in a window, what projects are entitled to, and who waits. A report stands still: its end is a moment
// that its reader renews.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type JobList, api, unwrap } from "../../api/client";
import { queryOf } from "../../lib/commands";
import type { components } from "../../api/schema";

type Schemas = components["schemas"];
export type Usage = Schemas["Usage"];
export type UsageRow = Schemas["UsageRow"];
export type Project = Schemas["Project"];
export type QueueTotals = Schemas["QueueTotals"];

const KEPT_MS = 300_000;
/** Of those that wait the ones that were submitted first. */
export const WAITERS = 15;

export const WINDOWS = {
  "24h": { seconds: 86_400, step: "1h", stepSeconds: 3_600, words: "24 hours" },
  "7d": { seconds: 604_800, step: "6h", stepSeconds: 21_600, words: "7 days" },
  "30d": { seconds: 2_592_000, step: "24h", stepSeconds: 86_400, words: "30 days" },
} as const;
export type WindowName = keyof typeof WINDOWS;

export interface Span {
  from: string;
  to: string;
}

/** The window that ends at a moment, or the one so many windows before it. */
export function spanOf(window: WindowName, end: number, before = 0): Span {
  const length = WINDOWS[window].seconds * 1_000;
  const to = end - before * length;
  return { from: new Date(to - length).toISOString(), to: new Date(to).toISOString() };
}

export const BYS = [
  { by: "user", name: "user" },
  { by: "project", name: "project" },
  { by: "gpu_type", name: "GPU type" },
  { by: "cause", name: "cause" },
] as const;
export type By = (typeof BYS)[number]["by"];

export function byOf(text: string | undefined): By {
  return BYS.find((one) => one.by === text)?.by ?? "user";
}

export function useUsage(span: Span, groupBy: string, step?: string) {
  return useQuery({
    queryKey: ["usage", span, groupBy, step],
    queryFn: () => {
      const query = { ...span, group_by: groupBy, ...(step ? { step } : {}) };
      return unwrap(api.GET("/api/v1/usage", { params: { query } })) as Promise<Usage>;
    },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: KEPT_MS,
    placeholderData: keepPreviousData,
  });
}

export function csvOf(span: Span, groupBy: string, step?: string): string {
  return `/api/v1/usage${queryOf({ ...span, group_by: groupBy, step, format: "csv" })}`;
}

/** Projects that have rules, and what waits of each; of the present alone. */
export function useShares(end: number) {
  return useQuery({
    queryKey: ["shares", end],
    queryFn: async () => {
      const [projects, queue] = await Promise.all([
        unwrap(api.GET("/api/v1/projects")),
        unwrap(api.GET("/api/v1/queue", { params: { query: { limit: 1 } } })),
      ]);
      return { projects: projects.items, waiting: queue.totals };
    },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: KEPT_MS,
  });
}

/** Jobs that were submitted longest ago and wait. */
export function useWaiters(end: number) {
  return useQuery({
    queryKey: ["longest-waits", end],
    queryFn: async () => {
      const query = { state: "queued", sort: "-submitted", limit: WAITERS, totals: true };
      return (await unwrap(api.GET("/api/v1/jobs", { params: { query } }))) as JobList;
    },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: KEPT_MS,
  });
}
