// The reservations of the cluster, as several pages ask for them.

import { useQuery } from "@tanstack/react-query";
import { useMemo, useSyncExternalStore } from "react";
import { serverNow, subscribe } from "../lib/clock";
import { type Reservation, type ReservationIndex, indexReservations, phaseOf } from "../lib/reservation";
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

/** The active and upcoming reservations. A past moment (`at`) has none: only those of the present are known. */
export function useReservationIndex(at?: string): ReservationIndex {
  const { data } = useReservations();
  const reservations = (at === undefined && data?.items) || NONE;
  // The text of the phases changes only when a reservation begins or ends, so that the page is not drawn every second.
  const phases = useSyncExternalStore(subscribe, () => {
    const now = serverNow();
    return reservations.map((one) => phaseOf(one, now)).join();
  });
  return useMemo(() => indexReservations(reservations, serverNow()), [reservations, phases]);
}
