import { expect, test } from "vitest";
import type { Plan } from "../../api/client";
import type { Assignment, Topology } from "./asks";
import { corner, geometry, mapOf, under } from "./map";

const gpus = (node: string) => Array.from({ length: 8 }, (_, index) => ({ activity: "training", index, uuid: `${node}-${index}` }));
const topology = {
  domains: [{ name: "d", nodes: ["n1", "n2", "n3"].map((id) => ({ id, name: id, gpus: gpus(id) })) }],
} as unknown as Topology;

function has(job: string, node: string, indices: number[]): Assignment {
  return { job_id: job, job_name: job, gpus: indices.length, slices: [{ node_id: node, gpu_uuids: indices.map((index) => `${node}-${index}`) }] } as Assignment;
}

test("only what changes hands counts as a change, and who had ended had nothing", () => {
  const before = [has("a", "n1", [0, 1]), has("b", "n2", [0]), has("ended", "n3", [0, 1])];
  const plan = { assignments: [has("a", "n1", [0, 1, 2]), has("b", "n2", [0]), has("c", "gone", [0])], moves: [] } as unknown as Plan;
  const map = mapOf(topology, plan, before);
  expect(map.nodes.map((node) => node.changes)).toEqual([true, false, false]);
  expect([map.changed, map.ended, map.gone]).toEqual([1, 2, 1]);
  expect(map.nodes[2]!.before[0]).toBeUndefined();
});

test("of a plan whose beginning is not known nothing changes", () => {
  const plan = { assignments: [has("a", "n1", [0])], moves: [] } as unknown as Plan;
  expect(mapOf(topology, plan, undefined)).toMatchObject({ changed: 0, ended: 0, gone: 0 });
});

test("a point in a cell finds its GPU, between cells it finds none", () => {
  const { nodes } = mapOf(topology, { assignments: [], moves: [] } as unknown as Plan, []);
  const at = geometry(nodes, 320);
  expect(at.columns).toBe(2);
  for (const node of [0, 1, 2]) {
    const [x, y] = corner(at, node, 5);
    expect(under(at, nodes, x + 2, y + 2)).toEqual({ node, gpu: 5 });
  }
  expect(under(at, nodes, 5, 5)).toBeUndefined();
  expect(under(at, nodes, at.boxWidth + 5, at.boxHeight + at.label + 5)).toBeUndefined();
});
