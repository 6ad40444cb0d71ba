// The cluster in columns: what sixteen thousand GPUs do, as numbers in arrays. As many objects would cost megabytes, and a pause whenever they come anew. Pure.

import type { components } from "../../api/schema";
import { type NodeClass, type NodeStanding, nodeShown } from "../../parts/NodeState";

type Schemas = components["schemas"];

/** What a GPU does. The last two are not the server's words: what is known of the past is less, and a newer server may have more. */
export const ACTIVITIES = [
  ...(["training", "starting", "stopping", "idle_no_demand", "idle_waiting"] as const),
  ...(["withheld", "unreachable", "broken", "reserved", "not_held", "unknown"] as const),
] as const;
export type Activity = (typeof ACTIVITIES)[number];

/** Classes of nodes; `broken`: nothing is wrong with it but that a GPU is. */
export const HEALTHS = ["well", "suspect", "drained", "lost", "joining", "broken"] as const;
export type Health = NodeClass | "broken";

export interface FleetNode extends NodeStanding {
  id: string;
  name: string;
  type: string;
  /** Its place among the domains. */
  domain: number;
  health: Health;
  /** Its first GPU's place among all. */
  first: number;
  gpus: number;
}

export interface FleetJob {
  id: string;
  name: string;
  gpus: number;
  nodes: number;
}

export interface FleetDomain {
  name: string;
  /** Its first node's place among all. */
  first: number;
  count: number;
}

export interface Fleet {
  domains: FleetDomain[];
  nodes: FleetNode[];
  /** Those that hold GPUs, who holds most first. */
  jobs: FleetJob[];
  /** Of each GPU: its index on its node, its node, what it does (a place in `ACTIVITIES`), and who holds it (a place in `jobs`; −1: nobody). */
  index: Uint16Array;
  node: Uint16Array;
  activity: Uint8Array;
  job: Int32Array;
}

/** Of the topology, what the map is made from. */
export interface Placed {
  domains: { name: string; nodes: Schemas["TopologyNode"][] }[];
}

const UNKNOWN = ACTIVITIES.indexOf("unknown");
const CODES = new Map<string, number>(ACTIVITIES.map((activity, code) => [activity, code]));

export function fleetOf({ domains }: Placed): Fleet {
  const cells = domains.reduce((sum, domain) => sum + domain.nodes.reduce((of, node) => of + node.gpus.length, 0), 0);
  const fleet: Fleet = {
    domains: [],
    nodes: [],
    jobs: [],
    index: new Uint16Array(cells),
    node: new Uint16Array(cells),
    activity: new Uint8Array(cells),
    job: new Int32Array(cells).fill(-1),
  };
  const places = new Map<string, number>();
  let cell = 0;
  for (const domain of domains) {
    fleet.domains.push({ name: domain.name, first: fleet.nodes.length, count: domain.nodes.length });
    for (const { gpus, id, name, gpu_type: type, availability, policy, standing } of domain.nodes) {
      const place = fleet.nodes.length;
      const kind = nodeShown({ availability, policy, standing }).kind;
      const health = kind === "well" && gpus.some((gpu) => gpu.activity === "broken") ? "broken" : kind;
      fleet.nodes.push({ ...{ id, name, type, availability, policy, standing, health }, domain: fleet.domains.length - 1, first: cell, gpus: gpus.length });
      const here = new Set<number>();
      for (const gpu of gpus) {
        fleet.index[cell] = gpu.index;
        fleet.node[cell] = place;
        fleet.activity[cell] = CODES.get(gpu.activity) ?? UNKNOWN;
        if (gpu.job_id) {
          const job = placed(fleet.jobs, places, gpu.job_id, gpu.job_name);
          fleet.job[cell] = job;
          fleet.jobs[job]!.gpus += 1;
          here.add(job);
        }
        cell += 1;
      }
      for (const job of here) fleet.jobs[job]!.nodes += 1;
    }
  }
  return ranked(fleet);
}

function placed(jobs: FleetJob[], places: Map<string, number>, id: string, name: string | null | undefined): number {
  const known = places.get(id);
  if (known !== undefined) return known;
  places.set(id, jobs.length);
  return jobs.push({ id, name: name ?? id.slice(-8), gpus: 0, nodes: 0 }) - 1;
}

/** With its jobs in the order of their GPUs, and of their ids where those are as many. */
function ranked(fleet: Fleet): Fleet {
  const order = fleet.jobs.map((_, place) => place);
  order.sort((a, b) => {
    const [one, other] = [fleet.jobs[a]!, fleet.jobs[b]!];
    return other.gpus - one.gpus || (one.id < other.id ? -1 : 1);
  });
  const places = new Int32Array(order.length);
  order.forEach((before, after) => (places[before] = after));
  const job = fleet.job.map((before) => (before < 0 ? -1 : places[before]!));
  return { ...fleet, jobs: order.map((place) => fleet.jobs[place]!), job };
}

/** Whether the same GPUs stand in the same places, so that only what they do can have changed. */
export function sameShape(one: Fleet, other: Fleet): boolean {
  if (one.nodes.length !== other.nodes.length || one.domains.length !== other.domains.length) return false;
  return one.nodes.every((node, place) => {
    const its = other.nodes[place]!;
    return node.id === its.id && node.domain === its.domain && node.gpus === its.gpus;
  });
}

/** Jobs could start on it now. */
export function isFree(activity: number): boolean {
  const word = ACTIVITIES[activity];
  return word === "idle_no_demand" || word === "idle_waiting";
}

export interface NodeCounts {
  busy: number;
  free: number;
  broken: number;
  /** Who holds GPUs of it: places in `jobs`, in the order of the GPUs. */
  jobs: number[];
}

export function countsOf(fleet: Fleet, place: number): NodeCounts {
  const { first, gpus } = fleet.nodes[place]!;
  const counts: NodeCounts = { busy: 0, free: 0, broken: 0, jobs: [] };
  for (let cell = first; cell < first + gpus; cell++) {
    const job = fleet.job[cell]!;
    if (job >= 0) {
      counts.busy += 1;
      if (!counts.jobs.includes(job)) counts.jobs.push(job);
    } else if (isFree(fleet.activity[cell]!)) counts.free += 1;
    if (ACTIVITIES[fleet.activity[cell]!] === "broken") counts.broken += 1;
  }
  return counts;
}

/** GPUs by what they do, nodes by class. */
export function census(fleet: Fleet): { activities: Map<Activity, number>; healths: Map<Health, number> } {
  const activities = new Map<Activity, number>();
  for (const code of fleet.activity) {
    const activity = ACTIVITIES[code]!;
    activities.set(activity, (activities.get(activity) ?? 0) + 1);
  }
  const healths = new Map<Health, number>();
  for (const { health } of fleet.nodes) healths.set(health, (healths.get(health) ?? 0) + 1);
  return { activities, healths };
}
