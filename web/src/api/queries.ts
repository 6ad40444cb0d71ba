// What the page reads: REST snapshots, refreshed when the stream says that something changed.

import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { type Job, type JobList, type NodeList, api, unwrap } from "./client";
import { type Connection, subscribe } from "./stream";

/** Fallback for a lost stream. */
const POLL_MS = 5_000;
/** Never refetch more often than this, however many events arrive. */
const COALESCE_MS = 700;

// Asked without `at` and `fields`, the reply is one of the present, whole; the document tells of the others, too.
export function useJobs() {
  return useQuery({
    queryKey: ["jobs"],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs", { params: { query: { limit: 200 } } }))) as JobList,
    refetchInterval: POLL_MS,
  });
}

export function useNodes() {
  return useQuery({
    queryKey: ["nodes"],
    queryFn: async () => (await unwrap(api.GET("/api/v1/nodes"))) as NodeList,
    refetchInterval: POLL_MS,
  });
}

export function useEvents() {
  return useQuery({
    queryKey: ["events"],
    queryFn: () => unwrap(api.GET("/api/v1/events", { params: { query: { limit: 60 } } })),
    refetchInterval: POLL_MS,
  });
}

export function usePlan() {
  return useQuery({
    queryKey: ["plan"],
    queryFn: () => unwrap(api.GET("/api/v1/plans/current")),
    refetchInterval: POLL_MS,
    retry: false,
  });
}

/** Measured series of the given jobs, one query each so that a new job does not refetch the others. */
export function useSeries(jobs: Job[]) {
  return useQueries({
    queries: jobs.map((job) => ({
      queryKey: ["series", job.id],
      queryFn: () =>
        unwrap(api.GET("/api/v1/jobs/{id}/series", { params: { path: { id: job.id }, query: { max_points: 600 } } })),
      refetchInterval: job.ended_at ? (false as const) : 3_000,
    })),
  });
}

/** Keeps the snapshots fresh from the stream and tells how the stream is. */
export function useLiveUpdates(): Connection {
  const queries = useQueryClient();
  const [state, setState] = useState<Connection>("connecting");
  useEffect(() => {
    const dirty = new Set<string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      for (const key of dirty) void queries.invalidateQueries({ queryKey: [key] });
      dirty.clear();
    };
    const stop = subscribe(["jobs", "nodes", "plans", "events"], {
      onState: setState,
      onMessage: (topic) => {
        const key = KEY_OF_TOPIC[topic];
        if (topic === "reset") Object.values(KEY_OF_TOPIC).forEach((all) => dirty.add(all));
        else if (key) dirty.add(key);
        else return;
        timer ??= setTimeout(flush, COALESCE_MS);
      },
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [queries]);
  return state;
}

const KEY_OF_TOPIC: Record<string, string> = {
  job: "jobs",
  job_patch: "jobs",
  jobs: "jobs",
  node: "nodes",
  node_patch: "nodes",
  nodes: "nodes",
  node_gone: "nodes",
  plan: "plan",
  plans: "plan",
  event: "events",
  events: "events",
};
