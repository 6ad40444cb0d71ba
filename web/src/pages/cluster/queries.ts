// What the map asks: who is where, what is free, and, zoomed in, how busy the GPUs in sight are.

import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { ApiError, api, unwrap } from "../../api/client";
import { POLL_MS } from "../../api/queries";
import type { components } from "../../api/schema";
import { gpusQuery } from "../node/queries";
import { type Fleet, fleetOf } from "./fleet";
import { placedThen } from "./past";

type Schemas = components["schemas"];

/** A topology has a fifth of a kilobyte for each GPU. */
const MANY_GPUS = 4_000;
/** The most nodes that are asked how busy their GPUs are: each is asked by itself. */
export const MOST_MEASURED = 64;
const MEASURE_MS = 15_000;
const ASKED_AT_ONCE = 4;

const topology = () => unwrap(api.GET("/api/v1/topology"));

/** How often the map is asked for anew. */
export function everySeconds(fleet: Fleet | undefined): number {
  return ((fleet?.job.length ?? 0) > MANY_GPUS ? 2 * POLL_MS : POLL_MS) / 1_000;
}

/** The cluster as it is, or as it was. Kept in columns; what came over the wire is let go. */
export function useFleet(at: string | undefined) {
  return useQuery({
    // Not among what the stream outdates: in a large cluster something happens to a node every second, and the map is megabytes.
    queryKey: at ? ["past", "map", at] : ["map", "now"],
    queryFn: async () => {
      if (!at) return fleetOf(await topology());
      const [now, then] = await Promise.all([topology(), unwrap(api.GET("/api/v1/nodes", { params: { query: { at } } }))]);
      return fleetOf(placedThen(now, then as Schemas["PastNodeList"]));
    },
    refetchInterval: (query) => (at ? false : everySeconds(query.state.data) * 1_000),
    staleTime: at ? Number.POSITIVE_INFINITY : POLL_MS,
    // Comparing sixteen thousand rows with those before would cost more than painting them.
    structuralSharing: false,
  });
}

/** What the newest plan leaves free, by GPU type; `null` before the first plan. */
export function useRoom() {
  return useQuery({
    queryKey: ["queue", "room"],
    queryFn: async () => (await unwrap(api.GET("/api/v1/queue", { params: { query: { limit: 1 } } }))).room ?? null,
    refetchInterval: 3 * POLL_MS,
  });
}

/** How busy the GPUs of some nodes are, each node asked by itself, few at once. Those that do not answer are left out. */
export function useMeasured(nodes: readonly string[], asked: boolean) {
  const queries = useQueryClient();
  const wanted = useMemo(() => [...nodes].sort(), [nodes]);
  return useQuery({
    queryKey: ["measured", wanted],
    queryFn: async ({ signal }) => {
      const found = new Map<string, Schemas["GpuDetail"][]>();
      const left = [...wanted];
      const ask = async () => {
        for (let node = left.pop(); node !== undefined && !signal.aborted; node = left.pop()) {
          try {
            found.set(node, (await queries.fetchQuery({ ...gpusQuery(node), staleTime: MEASURE_MS / 2 })).gpus);
          } catch (error) {
            if (!(error instanceof ApiError) || error.status !== 404) throw error;
          }
        }
      };
      await Promise.all(Array.from({ length: ASKED_AT_ONCE }, ask));
      return found;
    },
    enabled: asked && wanted.length > 0 && wanted.length <= MOST_MEASURED,
    refetchInterval: MEASURE_MS,
    placeholderData: keepPreviousData,
    structuralSharing: false,
  });
}

/** Of each GPU the share of the time in which some kernel ran; NaN where it is not known. */
export function sharesOf(fleet: Fleet, measured: ReadonlyMap<string, Schemas["GpuDetail"][]>): Float32Array {
  const shares = new Float32Array(fleet.job.length).fill(Number.NaN);
  for (const { id, first, gpus } of fleet.nodes) {
    for (const [place, gpu] of (measured.get(id) ?? []).slice(0, gpus).entries()) {
      if (gpu.utilisation_pct != null) shares[first + place] = gpu.utilisation_pct / 100;
    }
  }
  return shares;
}
