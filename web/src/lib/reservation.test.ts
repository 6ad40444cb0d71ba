import { expect, test } from "vitest";
import { type Reservation, byNode, effectOn, indexReservations, membersInWords, nextChange, nodesInWords, phaseOf, phaseOfNode, remainingTime, splitAtReservations } from "./reservation";

const NOON = Date.parse("2026-11-29T12:00:00Z");

function reservation(name: string, from: string, until: string, more: Partial<Reservation> = {}): Reservation {
  return {
    ...{ id: `id-${name}`, name, nodes: ["n1"], from: `2026-11-${from}:00:00Z`, until: `2026-11-${until}:00:00Z` },
    ...{ projects: [], users: [], jobs: [], maintenance: true, active: false, made_by: "ada", made_at: "2026-11-01T00:00:00Z" },
    ...more,
  };
}

const active = reservation("exam-week", "28T08", "30T08", { nodes: ["n1", "n2"], maintenance: false, users: ["ada", "grace"], projects: ["prod"] });
const upcoming = reservation("psu-swap", "29T18", "29T20");
const over = reservation("old", "27T08", "29T12");

test("a reservation is upcoming until it begins, active until it ends, and then over", () => {
  expect(phaseOf(upcoming, NOON)).toBe("upcoming");
  expect(phaseOf(upcoming, Date.parse(upcoming.from))).toBe("active");
  expect(phaseOf(upcoming, Date.parse(upcoming.until))).toBeUndefined();
});

test("reservations that are over are left out, and the next one comes first", () => {
  expect(indexReservations([upcoming, over, active], NOON).all.map((one) => one.name)).toEqual(["exam-week", "psu-swap"]);
});

test("a node with an active reservation is reserved now, whatever comes later", () => {
  const elsewhere = reservation("elsewhere", "29T18", "29T20", { nodes: ["n3"] });
  const index = indexReservations([upcoming, over, active, elsewhere], NOON);
  expect([...index.nodesIn.active]).toEqual(["n1", "n2"]);
  expect([...index.nodesIn.upcoming].sort()).toEqual(["n1", "n3"]);
  expect(["n1", "n2", "n3", "n4"].map((node) => phaseOfNode(index, node))).toEqual(["active", "active", "upcoming", undefined]);
  expect(indexReservations([over], NOON).byNode.size).toBe(0);
});

test("each node has its reservations in order", () => {
  const found = byNode([active, upcoming]);
  expect(found.get("n1")?.map((one) => one.name)).toEqual(["exam-week", "psu-swap"]);
  expect(found.get("n2")?.map((one) => one.name)).toEqual(["exam-week"]);
  expect(found.get("n3")).toBeUndefined();
});

test("the remaining time counts to the next change", () => {
  expect(remainingTime(active, NOON)).toBe("ends in 20h 00m");
  expect(remainingTime(upcoming, NOON)).toBe("begins in 6h 00m");
});

test("a node is reserved until the end of an active reservation, and from the beginning of an upcoming one", () => {
  expect(nextChange(active, NOON)).toEqual({ verb: "ends", preposition: "until", at: active.until });
  expect(nextChange(upcoming, NOON)).toEqual({ verb: "begins", preposition: "from", at: upcoming.from });
});

test("a line names three nodes, and of more how many", () => {
  expect(nodesInWords(["n1", "n2", "n3"])).toBe("n1, n2, n3");
  expect(nodesInWords(["n1", "n2", "n3", "n4", "n5"])).toBe("n1, n2, n3 and 2 more");
});

test("the effect depends on the phase, the members and the 7 days", () => {
  expect(effectOn(active, NOON)).toMatch(/^Only its members run/);
  expect(effectOn(upcoming, NOON)).toMatch(/^All jobs leave/);
  expect(effectOn({ ...upcoming, maintenance: false }, NOON)).toMatch(/^Jobs of others leave/);
  expect(effectOn(upcoming, Date.parse(upcoming.from))).toMatch(/^No job runs/);
  expect(effectOn(upcoming, NOON - 8 * 86_400_000)).toMatch(/closes no node yet/);
});

test("members are named by kind", () => {
  expect(membersInWords(active)).toBe("project prod; users ada, grace");
  expect(membersInWords(upcoming)).toBe("nobody: maintenance");
  expect(membersInWords({ ...active, projects: [], users: [], jobs: ["01a224e3-3a8e-7000-acca-eec868ecacfc"] })).toBe("job 68ecacfc");
});

test("a sentence is split at the names of reservations, and nowhere else", () => {
  const all = [active, upcoming, reservation("week", "28T08", "30T08"), reservation("8", "28T08", "30T08")];
  const names = (sentence: string) => splitAtReservations(sentence, all).map((piece) => (typeof piece === "string" ? piece : `<${piece.reservation.name}>`));
  expect(names("Needs 8 GPUs; all nodes it could use are reserved: exam-week (ends in 20 h), psu-swap (begins in 6.0 h)")).toEqual([
    "Needs 8 GPUs; all nodes it could use are reserved: ",
    "<exam-week>",
    " (ends in 20 h), ",
    "<psu-swap>",
    " (begins in 6.0 h)",
  ]);
  expect(names("psu-swap (begins in 6.0 h)")).toEqual(["<psu-swap>", " (begins in 6.0 h)"]);
  expect(names("psu-swap (begins in 6.0 h: a fan is loud)")).toEqual(["<psu-swap>", " (begins in 6.0 h: a fan is loud)"]);
  expect(names("reserved: gone (ends in 5 min)")).toEqual(["reserved: gone (ends in 5 min)"]);
});
