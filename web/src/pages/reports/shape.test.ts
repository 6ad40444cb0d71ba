import { expect, test } from "vitest";
import type { Project, Usage } from "./asked";
import { capacityOf, courseOf, fairness, jain, pairs, pivot } from "./shape";

const row = (project: string, cause: string, gpu_hours: number) => ({ project, cause, gpu_hours, jobs: 1 });
const project = (name: string, weight: number, decayed_gpu_hours: number, parent?: string): Project => ({
  ...{ name, weight, decayed_gpu_hours, parent: parent ?? null },
  ...{ gpus: 0, version: 1, borrow_gpus: 0, floor_gpus: 0 },
});

test("rows become lines with a sum, the largest first", () => {
  const lines = pivot([row("a", "useful", 1), row("b", "useful", 5), row("a", "rework", 2)], (one) => one.project);
  expect(lines.map((line) => [line.name, line.total])).toEqual([["b", 5], ["a", 3]]);
  expect(lines[1]!.byCause.get("rework")).toBe(2);
});

test("a project is held against its siblings, with what is part of it", () => {
  const projects = [project("nlp", 3, 10), project("vision", 1, 30), project("nlp-small", 1, 4, "nlp")];
  const shares = fairness(projects, [row("nlp", "useful", 20), row("nlp-small", "displaced", 10), row("vision", "useful", 10)]);
  expect(shares.map((one) => [one.project.name, one.depth])).toEqual([["nlp", 0], ["nlp-small", 1], ["vision", 0]]);
  const [nlp, small, vision] = shares;
  expect([nlp!.entitled, nlp!.used, nlp!.delivered, nlp!.share, nlp!.displaced]).toEqual([0.75, 0.25, 30, 0.75, 10]);
  expect([small!.entitled, small!.share]).toEqual([1, 1]);
  expect(vision!.share! / vision!.entitled).toBe(1);
  expect(jain(shares)).toBe(1);
  expect(jain(shares.slice(0, 1))).toBeUndefined();
});

const usage: Usage = {
  ...{ from: "2026-11-26T00:30:00Z", to: "2026-11-26T03:00:00Z", group_by: ["cause"], total_gpu_hours: 6, step_seconds: 3_600 },
  items: [{ cause: "useful", gpu_hours: 6, jobs: 1 }],
  steps: [
    { at: "2026-11-26T00:00:00Z", items: [{ cause: "useful", gpu_hours: 2, jobs: 1 }], healthy_gpu_hours: 4 },
    { at: "2026-11-26T02:00:00Z", items: [{ cause: "useful", gpu_hours: 4, jobs: 1 }], healthy_gpu_hours: null },
  ],
};

test("capacity is told with the steps of which it is known", () => {
  expect(capacityOf(usage)).toEqual({ gpuHours: 4, known: 1, steps: 3 });
});

test("a step that is not told is a gap, and the first counts for what lies within the span", () => {
  const course = courseOf(usage);
  expect(course.byCause.get("useful")).toEqual([4, null, 4]);
  expect(course.healthy).toEqual([8, null, null]);
});

test("two windows have a row for whatever either has", () => {
  const [before, now] = [[row("a", "useful", 2), row("b", "useful", 1)], [row("a", "useful", 3), row("c", "useful", 9)]].map((rows) => pivot(rows, (one) => one.project));
  expect(pairs(before!, now!)).toEqual([
    { name: "c", before: 0, now: 9 },
    { name: "a", before: 2, now: 3 },
    { name: "b", before: 1, now: 0 },
  ]);
});
