// What several pages and the shell ask. What one page alone asks stands beside it.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { serverRuns, serverSaid } from "../lib/clock";
import { type Job, type JobList, type Overview, type PastOverview, api, unwrap } from "./client";

/** Beside what the stream says: for what it does not tell of, and in case it is lost. */
export const POLL_MS = 5_000;
/** An incident is on the screen within five seconds. */
const PULSE_MS = 3_000;
/** A connection that says nothing for so long may be dead, and another is tried. */
const DEAD_MS = 15_000;

/** The cluster as it is: what tiles, banners and badges show. */
export function useOverview() {
  return useQuery({
    queryKey: ["overview", "now"],
    queryFn: async () => {
      const overview = (await unwrap(api.GET("/api/v1/overview", { signal: AbortSignal.timeout(DEAD_MS) }))) as Overview;
      serverSaid(overview.at);
      serverRuns(overview.clock_speed);
      return overview;
    },
    refetchInterval: PULSE_MS,
  });
}

/** The cluster as it was at a past moment. */
export function usePastOverview(at: string) {
  return useQuery({
    queryKey: ["overview", "at", at],
    queryFn: async () => (await unwrap(api.GET("/api/v1/overview", { params: { query: { at } } }))) as PastOverview,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
  });
}

/** Who is logged in, and what he may do. */
export function useWhoami() {
  return useQuery({ queryKey: ["whoami"], queryFn: () => unwrap(api.GET("/api/v1/auth/whoami")), staleTime: 60_000 });
}

export type JobQuery = NonNullable<Parameters<typeof askJobs>[0]>;

function askJobs(query: {
  state?: string;
  project?: string;
  user?: string;
  label?: string;
  q?: string;
  sort?: string;
  arrays?: string;
  totals?: boolean;
  cursor?: string;
  limit?: number;
}) {
  // Asked without `at` and `fields` the reply is of the present, and whole.
  return unwrap(api.GET("/api/v1/jobs", { params: { query: query as never } })) as Promise<JobList>;
}

/** A page of jobs; the stream keeps its rows fresh. */
export function useJobList(query: JobQuery) {
  return useQuery({
    queryKey: ["jobs", "list", query],
    queryFn: () => askJobs(query),
    refetchInterval: 3 * POLL_MS,
    placeholderData: keepPreviousData,
  });
}

export function useJob(id: string) {
  return useQuery({
    queryKey: ["jobs", "one", id],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs/{id}", { params: { path: { id } } }))) as Job,
    refetchInterval: POLL_MS,
  });
}
