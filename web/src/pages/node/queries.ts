// What the page of a node asks. A node is named by its id or its name.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type JobList, type Node, api, unwrap } from "../../api/client";
import { POLL_MS } from "../../api/queries";
import type { components } from "../../api/schema";

type Schemas = components["schemas"];

const SLOW_MS = 6 * POLL_MS;
/** Events of a page. */
export const EVENTS = 100;

export function useNode(node: string) {
  return useQuery({
    queryKey: ["nodes", "one", node],
    queryFn: async () => (await unwrap(api.GET("/api/v1/nodes/{node}", { params: { path: { node } } }))) as Node,
    refetchInterval: POLL_MS,
  });
}

/** As it was, as far as that is known. */
export function usePastNode(node: string, at: string | undefined) {
  return useQuery({
    queryKey: ["past", "node", node, at],
    queryFn: async () => (await unwrap(api.GET("/api/v1/nodes/{node}", { params: { path: { node }, query: { at: at! } } }))) as Schemas["PastNode"],
    staleTime: Number.POSITIVE_INFINITY,
    enabled: at !== undefined,
  });
}

/** Its GPUs, with what was measured of them. */
export function useNodeGpus(node: string) {
  return useQuery({
    queryKey: ["nodes", "gpus", node],
    queryFn: () => unwrap(api.GET("/api/v1/nodes/{node}/gpus", { params: { path: { node } } })),
    refetchInterval: POLL_MS,
  });
}

export function useNodeHealth(node: string) {
  return useQuery({
    queryKey: ["nodes", "health", node],
    queryFn: () => unwrap(api.GET("/api/v1/nodes/{node}/health", { params: { path: { node } } })),
    refetchInterval: 2 * POLL_MS,
  });
}

/** The newest first; `before`: those before this number; `until`: a moment. */
export function useNodeEvents(node: string, before: number | undefined, until: string | undefined) {
  const query = { limit: EVENTS, ...(before === undefined ? {} : { cursor: before }), ...(until === undefined ? {} : { until }) };
  return useQuery({
    queryKey: ["events", "node", node, query],
    queryFn: () => unwrap(api.GET("/api/v1/nodes/{node}/events", { params: { path: { node }, query } })),
    refetchInterval: before === undefined && until === undefined ? SLOW_MS : false,
    placeholderData: keepPreviousData,
  });
}

/** Jobs by their ids, few of them: each is asked for, since a list is not asked for by several ids. The stream keeps the rows fresh. */
export function useJobsOf(ids: readonly string[]) {
  return useQuery({
    queryKey: ["jobs", "list", { ids }],
    queryFn: async () => {
      const asked = ids.map((id) => api.GET("/api/v1/jobs/{id}", { params: { path: { id } } }));
      const items = (await Promise.all(asked)).flatMap(({ data }) => (data ? [data as JobList["items"][number]] : []));
      return { items };
    },
    refetchInterval: 3 * POLL_MS,
    placeholderData: keepPreviousData,
    enabled: ids.length > 0,
  });
}
