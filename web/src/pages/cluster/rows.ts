// The nodes as rows of a table, sorted. The whole cluster is known here, so that no page of a list is taken for all of it. Pure.

import type { Reservation, ReservationsByNode } from "../../lib/reservation";
import type { Fit } from "./filter";
import { type Fleet, type FleetJob, type FleetNode, type Health, type NodeCounts, countsOf } from "./fleet";

export interface NodeRow extends Omit<NodeCounts, "jobs"> {
  node: FleetNode;
  domain: string;
  holders: FleetJob[];
  /** Reservations of the node, the next one first. */
  reservations: readonly Reservation[];
}

const NONE: readonly Reservation[] = [];
const NO_RESERVATIONS: ReservationsByNode = new Map();

export function rowsOf(fleet: Fleet, fit: Fit | undefined, sort: string, reserved: ReservationsByNode = NO_RESERVATIONS): NodeRow[] {
  const rows = fleet.nodes.flatMap((node, place) => {
    if (fit && fit.nodes[place] === 0) return [];
    const { jobs, ...counts } = countsOf(fleet, place);
    return [{ node, domain: fleet.domains[node.domain]!.name, holders: jobs.map((job) => fleet.jobs[job]!), reservations: reserved.get(node.name) ?? NONE, ...counts }];
  });
  const turned = sort.startsWith("-");
  const order = ORDERS.get(turned ? sort.slice(1) : sort) ?? byName;
  return rows.sort((one, other) => (turned ? -1 : 1) * order(one, other) || byName(one, other));
}

function byName(one: NodeRow, other: NodeRow): number {
  return NAMES.compare(one.node.name, other.node.name);
}

/** As the URL names them. */
const ORDERS = new Map<string, (one: NodeRow, other: NodeRow) => number>([
  ["name", byName],
  ["state", (one, other) => badness(other) - badness(one)],
  ["type", (one, other) => NAMES.compare(one.node.type, other.node.type)],
  ["domain", (one, other) => NAMES.compare(one.domain, other.domain)],
  ["busy", (one, other) => other.busy - one.busy],
  ["free", (one, other) => other.free - one.free],
  ["reserved", (one, other) => firstOf(one) - firstOf(other)],
]);

/** Returns the beginning of the next reservation in milliseconds. Nodes without one come last. */
function firstOf({ reservations }: NodeRow): number {
  return reservations[0] ? Date.parse(reservations[0].from) : Number.MAX_VALUE;
}

/** "n2" before "n10". */
const NAMES = new Intl.Collator("en", { numeric: true });
const WORST: readonly Health[] = ["lost", "drained", "suspect", "broken", "joining", "well"];

function badness({ node, broken }: NodeRow): number {
  return (WORST.length - WORST.indexOf(node.health)) * 1_000 + broken;
}
