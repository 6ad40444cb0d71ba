import { expect, test } from "vitest";
import { byNode } from "../../lib/reservation";
import { fit } from "./filter";
import { census, countsOf, fleetOf, sameShape } from "./fleet";
import { placedFrom } from "./fixture";
import { roomOf } from "./room";
import { rowsOf } from "./rows";
import { told } from "./words";

const fleet = fleetOf(placedFrom({ r1: { n1: "aab.", n2: "bbbb" }, r2: { n3: "..!-" } }));

test("who holds most comes first, and every GPU knows its holder", () => {
  expect(fleet.jobs).toEqual([
    { id: "job-b", name: "b", gpus: 5, nodes: 2 },
    { id: "job-a", name: "a", gpus: 2, nodes: 1 },
  ]);
  expect([...fleet.job]).toEqual([1, 1, 0, -1, 0, 0, 0, 0, -1, -1, -1, -1]);
  expect([...fleet.node]).toEqual([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
  expect(fleet.domains).toEqual([
    { name: "r1", first: 0, count: 2 },
    { name: "r2", first: 2, count: 1 },
  ]);
});

test("a node is held, free and broken by its GPUs", () => {
  expect(countsOf(fleet, 0)).toEqual({ busy: 3, free: 1, broken: 0, jobs: [1, 0] });
  expect(countsOf(fleet, 2)).toEqual({ busy: 0, free: 2, broken: 1, jobs: [] });
});

test("the census counts every GPU and every node once", () => {
  const { activities, healths } = census(fleet);
  expect([...activities.values()].reduce((sum, one) => sum + one)).toBe(12);
  expect(activities.get("training")).toBe(7);
  expect(Object.fromEntries(healths)).toEqual({ well: 2, broken: 1 });
});

test("of what ails a node the worst is told", () => {
  const standings = {
    a: { policy: "draining", standing: "quarantined" },
    b: { availability: "unreachable", policy: "draining" },
    c: { standing: "probation" },
  };
  const ill = fleetOf(placedFrom({ r: { a: "!", b: ".", c: "." } }, standings));
  expect(ill.nodes.map((node) => node.health)).toEqual(["drained", "lost", "suspect"]);
});

test("only what GPUs do may change without everything taking another place", () => {
  expect(sameShape(fleet, fleetOf(placedFrom({ r1: { n1: "....", n2: "cccc" }, r2: { n3: "...." } })))).toBe(true);
  expect(sameShape(fleet, fleetOf(placedFrom({ r1: { n1: "aab.", n2: "bbbb" }, r2: { n3: "..!" } })))).toBe(false);
  expect(sameShape(fleet, fleetOf(placedFrom({ r1: { n1: "aab." }, r2: { n2: "bbbb", n3: "..!-" } })))).toBe(false);
});

test("without a filter everything is admitted", () => {
  expect(fit(fleet, {})).toBeUndefined();
  expect(fit(fleet, { q: "  " })).toBeUndefined();
});

test("filters admit by job, name, domain, type and health", () => {
  const admitted = (wanted: Parameters<typeof fit>[1]) => {
    const found = fit(fleet, wanted)!;
    return [[...found.nodes].join(""), found.cellCount];
  };
  expect(admitted({ job: "job-a" })).toEqual(["100", 2]);
  expect(admitted({ q: "B" })).toEqual(["110", 5]);
  expect(admitted({ q: "r2" })).toEqual(["001", 4]);
  expect(admitted({ health: "broken" })).toEqual(["001", 1]);
  expect(admitted({ health: "well", q: "n1" })).toEqual(["100", 4]);
  expect(admitted({ type: "A100" })).toEqual(["000", 0]);
  expect(admitted({ job: "job-of-nobody" })).toEqual(["000", 0]);
});

test("free GPUs are told with the blocks that they come in", () => {
  expect(roomOf(fleet)).toEqual([
    { type: "H100", total: 12, free: 3, onOneNode: 2, inOneDomain: 2, domain: "r2", blocks: [{ free: 2, nodes: 1 }, { free: 1, nodes: 1 }] },
  ]);
});

test("rows are sorted by what the URL says, and by name where it says nothing that is known", () => {
  const names = (sort: string, of = fleet) => rowsOf(of, undefined, sort).map((row) => row.node.name);
  expect(names("free")).toEqual(["n3", "n1", "n2"]);
  expect(names("-free")).toEqual(["n2", "n1", "n3"]);
  expect(names("state")).toEqual(["n3", "n1", "n2"]);
  expect(names("constructor")).toEqual(["n1", "n2", "n3"]);
  expect(names("name", fleetOf(placedFrom({ r: { n10: ".", n2: "." } })))).toEqual(["n2", "n10"]);
  expect(rowsOf(fleet, fit(fleet, { job: "job-a" }), "name").map((row) => row.node.name)).toEqual(["n1"]);
});

test("what stands at a place is told in words", () => {
  expect(told(fleet, { domain: 0, node: 0, cell: 1 }, undefined)).toEqual(["n1 · GPU 1", "a · 2 GPUs on 1 node", "training", "H100 in domain r1"]);
  expect(told(fleet, { domain: 1, node: 2, cell: 8 }, new Float32Array(12).fill(Number.NaN))).toContain("how busy it is was not measured");
  expect(told(fleet, { domain: 1 }, undefined)).toEqual(["domain r2", "1 node, 4 GPUs", "0 held, 2 free to start on"]);
});

test("idle GPUs of reserved nodes are not free, and jobs go on there", () => {
  const reserved = fleetOf(placedFrom({ r1: { n1: "aaR." } }));
  expect(countsOf(reserved, 0)).toEqual({ busy: 2, free: 1, broken: 0, jobs: [0] });
  expect(census(reserved).activities.get("reserved")).toBe(1);
});

test("nodes are filtered by reservation, and listed with theirs, the next one first", () => {
  const swap = { ...{ id: "1", name: "swap", nodes: ["n3"], from: "2026-11-29T18:00:00Z", until: "2026-11-29T20:00:00Z" }, ...RESERVATION };
  const exam = { ...{ id: "2", name: "exam", nodes: ["n2"], from: "2026-11-30T18:00:00Z", until: "2026-12-01T20:00:00Z" }, ...RESERVATION };
  expect([...fit(fleet, { among: new Set(swap.nodes) })!.nodes]).toEqual([0, 0, 1]);
  expect(fit(fleet, { among: new Set() })!.nodeCount).toBe(0);
  const rows = rowsOf(fleet, undefined, "reserved", byNode([swap, exam]));
  expect(rows.map((row) => [row.node.name, row.reservations.map((one) => one.name)])).toEqual([
    ["n3", ["swap"]],
    ["n2", ["exam"]],
    ["n1", []],
  ]);
  expect(told(fleet, { domain: 1, node: 2, cell: 8 }, undefined, (node) => [`reserved: ${node}`])).toContain("reserved: n3");
});

const RESERVATION = { projects: [], users: [], jobs: [], maintenance: true, active: false, made_by: "ada", made_at: "2026-11-01T00:00:00Z" };
