// Filter and order of the list of reservations. Pure.

import { type Phase, type Reservation, byBegin, nextChange, phaseOf } from "../../lib/reservation";

export interface ReservationFilter {
  phase?: Phase | undefined;
  /** Part of the name, of a node, or of a member, in any case. */
  q?: string | undefined;
}

export function fits(one: Reservation, { phase, q }: ReservationFilter, now: number): boolean {
  if (phase && phaseOf(one, now) !== phase) return false;
  const text = q?.trim().toLowerCase();
  return !text || [one.name, ...one.nodes, ...one.projects, ...one.users, ...one.jobs].some((name) => name.toLowerCase().includes(text));
}

/** Returns the reservations in an order as the URL names it: a `-` before it turns it round. */
export function sorted(reservations: readonly Reservation[], sort: string, now: number): Reservation[] {
  const turned = sort.startsWith("-");
  const order = ORDERS.get(turned ? sort.slice(1) : sort) ?? byBegin;
  return [...reservations].sort((one, other) => (turned ? -1 : 1) * order(one, other, now) || byBegin(one, other));
}

type Order = (one: Reservation, other: Reservation, now: number) => number;

function momentOfNextChange(one: Reservation, now: number): number {
  return Date.parse(nextChange(one, now).at);
}

const ORDERS = new Map<string, Order>([
  ["name", (one, other) => one.name.localeCompare(other.name, "en", { numeric: true })],
  ["from", byBegin],
  ["until", (one, other) => Date.parse(one.until) - Date.parse(other.until)],
  ["next", (one, other, now) => momentOfNextChange(one, now) - momentOfNextChange(other, now)],
  ["by", (one, other) => one.made_by.localeCompare(other.made_by)],
]);
