// What stands at a place of the map, in words: for the pointer, for the cursor, and for who does not see the map. Pure.

import { count, percent } from "../../lib/format";
import { activityShown } from "../../parts/Activity";
import { nodeShown } from "../../parts/NodeState";
import { ACTIVITIES, type Fleet, countsOf } from "./fleet";
import type { Hit } from "./layout";

/** One line for each thing to say; the first names it. `reserved`: a line for each reservation of a node, by the node's name. */
export function told(fleet: Fleet, hit: Hit, shares: Float32Array | undefined, reserved: (node: string) => readonly string[] = () => []): string[] {
  if (hit.node === undefined) return ofDomain(fleet, hit.domain);
  const node = fleet.nodes[hit.node];
  if (!node) return [];
  const state = node.health === "well" ? [] : [node.health === "broken" ? "a GPU of the node is broken" : `the node is ${nodeShown(node).word}`];
  const place = `${node.type} in domain ${fleet.domains[node.domain]!.name}`;
  const reservations = reserved(node.name);
  if (hit.cell === undefined) return [node.name, ...state, ...reservations, place, "it tells of no GPUs"];
  const activity = activityShown(ACTIVITIES[fleet.activity[hit.cell]!]!);
  const job = fleet.jobs[fleet.job[hit.cell]!];
  const share = shares?.[hit.cell];
  return [
    `${node.name} · GPU ${fleet.index[hit.cell]}`,
    ...(job ? [`${job.name} · ${gpus(job.gpus)} on ${nodes(job.nodes)}`] : []),
    `${activity.word}${job ? "" : `: ${activity.means}`}`,
    ...(shares === undefined ? [] : [share === undefined || Number.isNaN(share) ? "how busy it is was not measured" : `${percent(share)} of the time some kernel ran`]),
    ...state,
    ...reservations,
    place,
  ];
}

function ofDomain(fleet: Fleet, place: number): string[] {
  const domain = fleet.domains[place];
  if (!domain) return [];
  let [all, busy, free] = [0, 0, 0];
  for (let node = domain.first; node < domain.first + domain.count; node++) {
    const counts = countsOf(fleet, node);
    all += fleet.nodes[node]!.gpus;
    busy += counts.busy;
    free += counts.free;
  }
  return [`domain ${domain.name}`, `${nodes(domain.count)}, ${gpus(all)}`, `${count(busy)} held, ${count(free)} free to start on`];
}

export function gpus(amount: number): string {
  return `${count(amount)} ${amount === 1 ? "GPU" : "GPUs"}`;
}

export function nodes(amount: number): string {
  return `${count(amount)} ${amount === 1 ? "node" : "nodes"}`;
}
