// Small clusters for tests, one letter for each GPU.

import type { NodeStanding } from "../../parts/NodeState";
import type { Placed } from "./fleet";
import type { Shape } from "./layout";

/** Any other letter is the job that trains on it. */
const ACTIVITIES: Record<string, string> = { ".": "idle_no_demand", "?": "idle_waiting", "-": "withheld", R: "reserved", "!": "broken" };

/** Domains by name, in each the GPUs of its nodes by name: `{ r1: { n1: "aab." } }`. */
export function placedFrom(domains: Record<string, Record<string, string>>, standings: Record<string, Partial<NodeStanding>> = {}): Placed {
  return {
    domains: Object.entries(domains).map(([domain, nodes]) => ({
      name: domain,
      nodes: Object.entries(nodes).map(([name, gpus]) => ({
        ...{ id: `id-${name}`, name, gpu_type: "H100", availability: "available", policy: "schedulable", standing: "good" },
        ...standings[name],
        gpus: [...gpus].map((letter, index) => {
          const idle = ACTIVITIES[letter];
          const uuid = `${name}-${index}`;
          return idle ? { uuid, index, activity: idle } : { uuid, index, activity: "training", job_id: `job-${letter}`, job_name: letter };
        }),
      })),
    })),
  };
}

/** Domains, in each the number of GPUs of its nodes. */
export function shapeOf(domains: readonly (readonly number[])[]): Shape & { node: number[] } {
  const shape = { domains: [] as { first: number; count: number }[], nodes: [] as { first: number; gpus: number }[], node: [] as number[] };
  for (const nodes of domains) {
    shape.domains.push({ first: shape.nodes.length, count: nodes.length });
    for (const gpus of nodes) {
      shape.nodes.push({ first: shape.node.length, gpus });
      for (let gpu = 0; gpu < gpus; gpu++) shape.node.push(shape.nodes.length - 1);
    }
  }
  return shape;
}

/** So many domains of so many nodes with eight GPUs each. */
export function alike(domains: number, nodes: number): Shape & { node: number[] } {
  return shapeOf(Array.from({ length: domains }, () => Array.from({ length: nodes }, () => 8)));
}
