// The reservations of the cluster, as several pages ask for them.

import { useQuery } from "@tanstack/react-query";
import { useMemo, useSyncExternalStore } from "react";
import { serverNow, subscribe } from "../lib/clock";
import { type Reservation, type ReservationsByNode, byNode, inOrder, phaseOf } from "../lib/reservation";
import { api, unwrap } from "./client";
import { POLL_MS } from "./queries";

export const RESERVATIONS_SECONDS = (2 * POLL_MS) / 1_000;
const NONE: readonly Reservation[] = [];

export function useReservations() {
  return useQuery({
    queryKey: ["reservations"],
    queryFn: () => unwrap(api.GET("/api/v1/reservations")),
    refetchInterval: RESERVATIONS_SECONDS * 1_000,
  });
}

/** The reservations of the cluster, the next one first. The server leaves out those that are over. A past moment (`at`) has none: only those of the present are known. */
export function useOrderedReservations(at: string | undefined): readonly Reservation[] {
  const items = useReservations().data?.items;
  return useMemo(() => (at === undefined && items ? inOrder(items) : NONE), [items, at]);
}

export function useReservationsByNode(at: string | undefined): ReservationsByNode {
  const reservations = useOrderedReservations(at);
  return useMemo(() => byNode(reservations), [reservations]);
}

/** Ids of the reservations that are active now, as one text. It changes only when one begins or ends, so that a page need not be drawn every second. */
export function useActiveIds(reservations: readonly Reservation[]): string {
  return useSyncExternalStore(subscribe, () => {
    const now = serverNow();
    const active = reservations.filter((one) => phaseOf(one, now) === "active");
    return active.map((one) => one.id).join(" ");
  });
}
