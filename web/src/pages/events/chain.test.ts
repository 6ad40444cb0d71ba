import { expect, test } from "vitest";
import { type EventLink, type Run, parted, runs } from "./chain";

const link = (seq: number, because_of?: number): EventLink => ({
  event: { seq, at: "2026-11-26T03:00:00Z", actor: "scheduler", verb: "job.started", message: "" },
  because_of: because_of ?? null,
});
const numbers = (run: Run): unknown => [run.links.map((one) => one.event.seq), ...run.branches.map(numbers)];

test("what follows one from another is one run", () => {
  expect(runs([link(4), link(5, 4), link(7, 5)]).map(numbers)).toEqual([[[4, 5, 7]]]);
});

test("a run parts where several follow from one", () => {
  const parts = runs([link(1), link(2, 1), link(3, 2), link(4, 2), link(5, 3), link(6, 4)]);
  expect(parts.map(numbers)).toEqual([[[1, 2], [[3, 5]], [[4, 6]]]]);
});

test("a cause that is not told begins a run", () => {
  expect(runs([link(9, 3)]).map(numbers)).toEqual([[[9]]]);
});

test("of many branches the one asked of is never folded away", () => {
  const branches = runs([link(1), ...[2, 3, 4, 5].map((seq) => link(seq, 1))])[0]!.branches;
  const [shown, folded] = parted(branches, 5, 2);
  expect(shown.map((run) => run.links[0]!.event.seq)).toEqual([2, 3, 5]);
  expect(folded.map((run) => run.links[0]!.event.seq)).toEqual([4]);
});
