// What is free, and in how large blocks: fragmentation is what keeps a job waiting while GPUs are idle. Pure.

import { type Fleet, isFree } from "./fleet";

export interface Room {
  type: string;
  total: number;
  /** Jobs could start on them now. */
  free: number;
  /** The most free ones on one node, and in one domain. */
  onOneNode: number;
  inOneDomain: number;
  domain: string | undefined;
  /** How many nodes have so many free: the most free ones first, none left out that has any. */
  blocks: { free: number; nodes: number }[];
}

/** By GPU type. */
export function roomOf(fleet: Fleet): Room[] {
  const types = new Map<string, { total: number; free: number; byDomain: Map<number, number>; byFree: Map<number, number> }>();
  for (const node of fleet.nodes) {
    const of = types.get(node.type) ?? { total: 0, free: 0, byDomain: new Map(), byFree: new Map() };
    types.set(node.type, of);
    let free = 0;
    for (let cell = node.first; cell < node.first + node.gpus; cell++) {
      if (isFree(fleet.activity[cell]!)) free += 1;
    }
    of.total += node.gpus;
    if (free === 0) continue;
    of.free += free;
    of.byDomain.set(node.domain, (of.byDomain.get(node.domain) ?? 0) + free);
    of.byFree.set(free, (of.byFree.get(free) ?? 0) + 1);
  }
  return [...types].sort(([one], [other]) => (one < other ? -1 : 1)).map(([type, { total, free, byDomain, byFree }]) => {
    const blocks = [...byFree].map(([size, nodes]) => ({ free: size, nodes })).sort((a, b) => b.free - a.free);
    const [roomiest, most] = [...byDomain].reduce<[number, number]>((best, one) => (one[1] > best[1] ? one : best), [-1, 0]);
    return { type, total, free, onOneNode: blocks[0]?.free ?? 0, inOneDomain: most, domain: fleet.domains[roomiest]?.name, blocks };
  });
}
