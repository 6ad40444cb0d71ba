import { expect, test } from "vitest";
import type { Reservation } from "../../lib/reservation";
import { fits, sorted } from "./list";

const NOON = Date.parse("2026-11-29T12:00:00Z");
const base = { projects: [], users: [], jobs: [], maintenance: true, active: false, made_by: "ada", made_at: "2026-11-01T00:00:00Z" };
const exam: Reservation = { ...base, id: "1", name: "exam", nodes: ["n1"], from: "2026-11-28T00:00:00Z", until: "2026-12-02T00:00:00Z", users: ["Grace"], made_by: "eve" };
const swap: Reservation = { ...base, id: "2", name: "swap", nodes: ["n2"], from: "2026-11-29T18:00:00Z", until: "2026-11-29T20:00:00Z" };
const all = [exam, swap];
const names = (of: readonly Reservation[]) => of.map((one) => one.name);

test("a filter takes the state, and a part of a name, node or member", () => {
  expect(names(all.filter((one) => fits(one, { phase: "active" }, NOON)))).toEqual(["exam"]);
  expect(names(all.filter((one) => fits(one, { q: "grace" }, NOON)))).toEqual(["exam"]);
  expect(names(all.filter((one) => fits(one, { q: "N2" }, NOON)))).toEqual(["swap"]);
  expect(names(all.filter((one) => fits(one, {}, NOON)))).toEqual(["exam", "swap"]);
});

test("the next change is the end of an active reservation, and the beginning of an upcoming one", () => {
  expect(names(sorted(all, "next", NOON))).toEqual(["swap", "exam"]);
  expect(names(sorted(all, "-next", NOON))).toEqual(["exam", "swap"]);
  expect(names(sorted(all, "by", NOON))).toEqual(["swap", "exam"]);
  expect(names(sorted(all, "no such order", NOON))).toEqual(["exam", "swap"]);
});
