// Which nodes and GPUs a filter admits. All of what is asked for has to hold. Pure.

import { ACTIVITIES, type Fleet, type FleetNode } from "./fleet";

export interface Wanted {
  /** Part of the name of a node, of its domain or of a job, in any case. */
  q?: string | undefined;
  type?: string | undefined;
  /** Id of a job. */
  job?: string | undefined;
  /** A class of nodes; `broken`: GPUs that are broken, on whatever node. */
  health?: string | undefined;
  /** Names of nodes: those that a filter by reservation leaves. */
  among?: ReadonlySet<string> | undefined;
}

export interface Fit {
  /** One for each node or GPU: 1 where it is admitted. */
  nodes: Uint8Array;
  cells: Uint8Array;
  nodeCount: number;
  cellCount: number;
}

const BROKEN = ACTIVITIES.indexOf("broken");

/** `undefined`: nothing is asked for, so that everything is admitted. */
export function fit(fleet: Fleet, wanted: Wanted): Fit | undefined {
  const text = wanted.q?.trim().toLowerCase();
  const { type, job, health, among } = wanted;
  if (!text && !type && !job && !health && !among) return undefined;
  const holder = job === undefined ? undefined : fleet.jobs.findIndex((one) => one.id === job);
  const called = text ? fleet.jobs.map((one) => one.name.toLowerCase().includes(text)) : [];
  const found: Fit = { nodes: new Uint8Array(fleet.nodes.length), cells: new Uint8Array(fleet.job.length), nodeCount: 0, cellCount: 0 };
  fleet.nodes.forEach((node, place) => {
    if (type && node.type !== type) return;
    if (among && !among.has(node.name)) return;
    if (health && health !== "broken" && node.health !== health) return;
    const named = !text || isCalled(fleet, node, text);
    for (let cell = node.first; cell < node.first + node.gpus; cell++) {
      const by = fleet.job[cell]!;
      if (health === "broken" && fleet.activity[cell] !== BROKEN) continue;
      if (holder !== undefined && (holder < 0 || by !== holder)) continue;
      if (!named && !(by >= 0 && called[by])) continue;
      found.cells[cell] = 1;
      found.cellCount += 1;
      found.nodes[place] = 1;
    }
    // A node that tells of no GPUs is looked for as well.
    if (node.gpus === 0 && named && holder === undefined && health !== "broken") found.nodes[place] = 1;
    found.nodeCount += found.nodes[place]!;
  });
  return found;
}

function isCalled(fleet: Fleet, node: FleetNode, text: string): boolean {
  return node.name.toLowerCase().includes(text) || fleet.domains[node.domain]!.name.toLowerCase().includes(text);
}
