// Which ranks of an attempt write, and which of them are asked for. Pure.

import type { AllocationRecord, JobDetail } from "../asks";

/** As many as the server reads at once. */
export const MOST_RANKS = 64;

export interface Writer {
  rank: number;
  node: string;
}

/** One process for each GPU, or one for each node, called by the first rank there. */
export function writers(job: Pick<JobDetail, "spec">, allocation: AllocationRecord): Writer[] {
  const { run } = (job.spec ?? {}) as { run?: { per?: string } };
  const each = run?.per === "gpu";
  let first = 0;
  return allocation.slices.flatMap((slice) => {
    const node = slice.node_name ?? slice.node_id;
    const many = slice.gpu_uuids.length;
    const own = Array.from({ length: each ? many : Math.min(many, 1) }, (_, index) => ({ rank: first + index, node }));
    first += many;
    return own;
  });
}

export interface Choice {
  value: string;
  label: string;
}

/** What can be chosen: all, or as many at once as can be read; one of each node; each alone. */
export function choices(of: readonly Writer[]): Choice[] {
  const all: Choice[] = [];
  if (of.length > 1 && of.length <= MOST_RANKS) all.push({ value: "all", label: `all ${of.length} ranks` });
  for (let at = 0; of.length > MOST_RANKS && at < of.length; at += MOST_RANKS) {
    const part = of.slice(at, at + MOST_RANKS);
    const [first, last] = [part[0]!.rank, part[part.length - 1]!.rank];
    all.push({ value: `${first}-${last}`, label: `ranks ${first} to ${last}` });
  }
  const heads = of.filter((one, index) => of[index - 1]?.node !== one.node);
  if (heads.length > 1 && heads.length < of.length && heads.length <= MOST_RANKS) all.push({ value: "nodes", label: `one of each of ${heads.length} nodes` });
  return [...all, ...of.map(({ rank, node }) => ({ value: String(rank), label: `rank ${rank} on ${node}` }))];
}

/** The ranks that a choice means, of those that write; the usual one where it means none. */
export function chosen(of: readonly Writer[], choice: string | undefined): number[] {
  const ranks = of.map((one) => one.rank);
  const usual = ranks.length <= MOST_RANKS ? ranks : ranks.slice(0, 1);
  if (choice === undefined || choice === "all") return usual;
  if (choice === "nodes") return of.filter((one, index) => of[index - 1]?.node !== one.node).map((one) => one.rank).slice(0, MOST_RANKS);
  const wanted = new Set<number>();
  for (const part of choice.split(",")) {
    const span = /^(\d+)(?:-(\d+))?$/.exec(part.trim());
    if (!span) return usual;
    const [first, last] = [Number(span[1]), Number(span[2] ?? span[1])];
    ranks.filter((rank) => rank >= first && rank <= last).forEach((rank) => wanted.add(rank));
  }
  const found = ranks.filter((rank) => wanted.has(rank)).slice(0, MOST_RANKS);
  return found.length > 0 ? found : usual;
}
