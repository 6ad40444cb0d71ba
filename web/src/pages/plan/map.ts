// Who has which GPU before a plan and after it, node by node, and where each stands on the map. Pure.

import type { Plan } from "../../api/client";
import type { Assignment, Topology } from "./asks";

export interface MapNode {
  id: string;
  name: string;
  domain: string;
  /** In the order of the node's GPUs: who has each; undefined: nobody. */
  before: (string | undefined)[];
  after: (string | undefined)[];
  changes: boolean;
}

export interface PlanMap {
  nodes: MapNode[];
  /** GPUs that change hands, come free or are taken. */
  changed: number;
  /** GPUs of jobs that had ended by the time the plan was made: free before it. */
  ended: number;
  /** GPUs of nodes that are there no longer. */
  gone: number;
}

export function mapOf({ domains }: Topology, plan: Plan, before: readonly Assignment[] | undefined): PlanMap {
  const stays = new Set([...plan.assignments, ...plan.moves].map((one) => one.job_id));
  const alive = before?.filter((one) => stays.has(one.job_id));
  const [had, has] = [holders(alive ?? []), holders(plan.assignments)];
  const map: PlanMap = { nodes: [], changed: 0, ended: holders(before ?? []).size - had.size, gone: 0 };
  let seen = 0;
  for (const domain of domains) {
    for (const { id, name, gpus } of domain.nodes) {
      const node: MapNode = { id, name, domain: domain.name, before: [], after: [], changes: false };
      for (const { uuid } of gpus) {
        const [from, to] = [had.get(uuid), has.get(uuid)];
        node.before.push(from);
        node.after.push(to);
        if (to !== undefined) seen++;
        if (from === to || before === undefined) continue;
        node.changes = true;
        map.changed++;
      }
      map.nodes.push(node);
    }
  }
  map.gone = has.size - seen;
  return map;
}

/** Who holds which GPU. */
function holders(assignments: readonly Assignment[]): Map<string, string> {
  const of = new Map<string, string>();
  for (const { job_id, slices } of assignments) for (const slice of slices) for (const gpu of slice.gpu_uuids) of.set(gpu, job_id);
  return of;
}

/** GPUs in a row of a node. */
const ACROSS = 8;
/** The more nodes, the smaller their GPUs. */
const SIZES = [
  { nodes: 48, cell: 16, label: 14 },
  { nodes: 240, cell: 10, label: 13 },
  { nodes: Number.POSITIVE_INFINITY, cell: 6, label: 0 },
];

export interface Geometry {
  cell: number;
  /** Of the node's name above its GPUs; 0: there is no room for it. */
  label: number;
  columns: number;
  /** Of a node, with what is between nodes. */
  boxWidth: number;
  boxHeight: number;
  width: number;
  height: number;
}

export function geometry(nodes: readonly MapNode[], width: number): Geometry {
  const { cell, label } = SIZES.find((size) => nodes.length <= size.nodes)!;
  const down = Math.max(1, ...nodes.map((node) => Math.ceil(node.after.length / ACROSS)));
  const boxWidth = ACROSS * (cell + 1) + 9;
  const boxHeight = down * (cell + 1) + label + 7;
  const columns = Math.max(1, Math.floor(width / boxWidth));
  return { cell, label, columns, boxWidth, boxHeight, width, height: Math.ceil(nodes.length / columns) * boxHeight };
}

/** The corner of a GPU. */
export function corner(of: Geometry, node: number, gpu: number): [number, number] {
  const x = (node % of.columns) * of.boxWidth + (gpu % ACROSS) * (of.cell + 1);
  const y = Math.floor(node / of.columns) * of.boxHeight + of.label + Math.floor(gpu / ACROSS) * (of.cell + 1);
  return [x, y];
}

/** Which GPU is under a point. */
export function under(of: Geometry, nodes: readonly MapNode[], x: number, y: number): { node: number; gpu: number } | undefined {
  const column = Math.floor(x / of.boxWidth);
  const node = Math.floor(y / of.boxHeight) * of.columns + column;
  if (column >= of.columns || !nodes[node]) return undefined;
  const [left, top] = corner(of, node, 0);
  const [across, row] = [Math.floor((x - left) / (of.cell + 1)), Math.floor((y - top) / (of.cell + 1))];
  const gpu = row * ACROSS + across;
  return across >= 0 && across < ACROSS && row >= 0 && gpu < nodes[node].after.length ? { node, gpu } : undefined;
}
