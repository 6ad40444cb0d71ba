// What the map asks: who is where, what is free, and how busy the GPUs are.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../../api/client";
import { POLL_MS } from "../../api/queries";
import type { components } from "../../api/schema";
import { type Fleet, fleetOf } from "./fleet";
import { placedThen } from "./past";

type Schemas = components["schemas"];

/** A topology has a fifth of a kilobyte for each GPU. */
const MANY_GPUS = 4_000;
const MEASURE_MS = 15_000;

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

/** Of each node how busy its GPUs are, in percent and in the order of their indices. */
export type Measured = ReadonlyMap<string, readonly (number | null)[]>;

/** How busy all GPUs are. */
export function useMeasured(asked: boolean) {
  return useQuery({
    queryKey: ["measured"],
    queryFn: async () => measuredOf(await unwrap(api.GET("/api/v1/gpus"))),
    enabled: asked,
    refetchInterval: MEASURE_MS,
    placeholderData: keepPreviousData,
    structuralSharing: false,
  });
}

export function measuredOf({ nodes, node, utilisation_pct: busy }: Pick<Schemas["GpuColumns"], "nodes" | "node" | "utilisation_pct">): Measured {
  const found = nodes.map(() => [] as (number | null)[]);
  node.forEach((place, row) => found[place]?.push(busy[row] ?? null));
  return new Map(nodes.map(({ id }, place) => [id, found[place]!]));
}

/** Of each GPU the share of the time in which some kernel ran; NaN where it is not known. */
export function sharesOf(fleet: Fleet, measured: Measured): Float32Array {
  const shares = new Float32Array(fleet.job.length).fill(Number.NaN);
  for (const { id, first, gpus } of fleet.nodes) {
    for (const [place, busy] of (measured.get(id) ?? []).slice(0, gpus).entries()) {
      if (busy != null) shares[first + place] = busy / 100;
    }
  }
  return shares;
}
