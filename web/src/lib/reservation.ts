// Reservations: when they hold, which nodes they set aside, and where a sentence of the server names one. Pure.

import type { components } from "../api/schema";
import { duration } from "./format";

export type Reservation = components["schemas"]["Reservation"];
export const PHASES = ["active", "upcoming"] as const;
export type Phase = (typeof PHASES)[number];

/** A reservation that begins later than this closes no node yet (docs/operations.md#reservations). */
const CLOSES_WITHIN_SECONDS = 7 * 86_400;
/** Nodes that a line names. */
const NAMED = 3;

/** Returns the phase at a moment in milliseconds; `undefined`: the reservation is over. */
export function phaseOf({ from, until }: Pick<Reservation, "from" | "until">, now: number): Phase | undefined {
  if (Date.parse(until) <= now) return undefined;
  return Date.parse(from) <= now ? "active" : "upcoming";
}

/** Compares two reservations by their beginning, and by name where they begin together. */
export function byBegin(one: Reservation, other: Reservation): number {
  return Date.parse(one.from) - Date.parse(other.from) || one.name.localeCompare(other.name);
}

/** Reservations by the name of the node, in the order in which they were given. */
export type ReservationsByNode = ReadonlyMap<string, readonly Reservation[]>;

/** The reservations that are active or upcoming at one moment, indexed once for all nodes. */
export interface ReservationIndex {
  /** Reservations in the order in which they begin. */
  all: readonly Reservation[];
  byNode: ReservationsByNode;
  /** Names of the nodes that have a reservation in the phase. A node can be in both sets. */
  nodesIn: Readonly<Record<Phase, ReadonlySet<string>>>;
}

export function indexReservations(reservations: readonly Reservation[], now: number): ReservationIndex {
  const all = reservations.filter((one) => phaseOf(one, now) !== undefined).sort(byBegin);
  const nodesIn = (phase: Phase) => new Set(all.filter((one) => phaseOf(one, now) === phase).flatMap((one) => one.nodes));
  return { all, byNode: byNode(all), nodesIn: { active: nodesIn("active"), upcoming: nodesIn("upcoming") } };
}

/** Returns the phase of a node: an active reservation comes before an upcoming one. */
export function phaseOfNode({ nodesIn }: ReservationIndex, node: string): Phase | undefined {
  if (nodesIn.active.has(node)) return "active";
  return nodesIn.upcoming.has(node) ? "upcoming" : undefined;
}

export function byNode(reservations: readonly Reservation[]): ReservationsByNode {
  const found = new Map<string, Reservation[]>();
  for (const one of reservations) {
    for (const node of one.nodes) {
      const here = found.get(node);
      if (here) here.push(one);
      else found.set(node, [one]);
    }
  }
  return found;
}

interface Change {
  verb: "begins" | "ends";
  /** Of the moment: the node is reserved from it, or until it. */
  preposition: "from" | "until";
  at: string;
}

/** Returns what happens to a reservation next, and when: an active one ends, an upcoming one begins. */
export function nextChange({ from, until }: Pick<Reservation, "from" | "until">, now: number): Change {
  if (Date.parse(from) <= now) return { verb: "ends", preposition: "until", at: until };
  return { verb: "begins", preposition: "from", at: from };
}

/** Returns the nodes by name, of many the first ones: "n1, n2 and 3 more". */
export function nodesInWords(nodes: readonly string[]): string {
  const named = nodes.slice(0, NAMED).join(", ");
  return nodes.length > NAMED ? `${named} and ${nodes.length - NAMED} more` : named;
}

/** Returns "ends in 2h 10m" or "begins in 5h 40m". */
export function remainingTime(reservation: Pick<Reservation, "from" | "until">, now: number): string {
  const { verb, at } = nextChange(reservation, now);
  return `${verb} in ${duration((Date.parse(at) - now) / 1_000)}`;
}

/** Returns one sentence: which jobs may use the nodes of a reservation now. */
export function effectOn({ from, maintenance }: Pick<Reservation, "from" | "maintenance">, now: number): string {
  const left = (Date.parse(from) - now) / 1_000;
  if (left <= 0) return maintenance ? "No job runs on its nodes until it ends." : "Only its members run on its nodes until it ends.";
  if (left > CLOSES_WITHIN_SECONDS) return "It begins in more than 7 days, so it closes no node yet.";
  const whose = maintenance ? "All jobs" : "Jobs of others";
  const newcomer = maintenance ? "a job" : "a job of others";
  return `${whose} leave its nodes before it begins. Until then ${newcomer} starts there only if it will have left in time.`;
}

/** Returns the members in one line: "project prod; users ada, grace". */
export function membersInWords({ maintenance, projects, users, jobs }: Pick<Reservation, "maintenance" | "projects" | "users" | "jobs">): string {
  if (maintenance) return "nobody: maintenance";
  const named = (noun: string, names: readonly string[]) => (names.length === 0 ? [] : [`${noun}${names.length === 1 ? "" : "s"} ${names.join(", ")}`]);
  const parts = [...named("project", projects), ...named("user", users), ...named("job", jobs.map((job) => job.slice(-8)))];
  return parts.join("; ");
}

/** A piece of a sentence: plain text, or the name of a reservation. */
export type Piece = string | { reservation: Reservation };

/**
 * Splits a sentence of the server at the names of reservations, so that they can be links. The server writes the time behind each name:
 * "exam-week (ends in 48.0 h)", perhaps with a reason: "exam-week (ends in 48.0 h: exams)". Another word that is spelt like a reservation stays text.
 */
export function splitAtReservations(sentence: string, reservations: readonly Reservation[]): Piece[] {
  const byName = new Map(reservations.map((one) => [one.name, one]));
  const pieces: Piece[] = [];
  let end = 0;
  for (const { index, groups } of sentence.matchAll(/(?<![\w.-])(?<name>[A-Za-z0-9][\w.-]*)(?= \((?:begins|ends) in )/g)) {
    const name = groups?.name ?? "";
    const reservation = byName.get(name);
    if (!reservation) continue;
    pieces.push(sentence.slice(end, index), { reservation });
    end = index + name.length;
  }
  pieces.push(sentence.slice(end));
  return pieces.filter((piece) => piece !== "");
}
