// The map of a past moment: where nodes stand is known of the present alone, who held which GPU also of then. Pure.

import type { components } from "../../api/schema";
import type { Activity, Placed } from "./fleet";

type Schemas = components["schemas"];

/** Where nodes are put that were deleted since: nobody knows their domain any more. */
export const GONE_SINCE = "deleted since";

const PHASES: Record<string, Activity> = { preparing: "starting", launching: "starting", running: "training" };

export function placedThen(now: Pick<Schemas["Topology"], "domains">, then: Schemas["PastNodeList"]): Placed {
  const known = new Map(now.domains.flatMap((domain) => domain.nodes.map((node) => [node.id, { domain: domain.name, node }] as const)));
  const domains = new Map<string, Schemas["TopologyNode"][]>();
  for (const was of then.items) {
    const today = known.get(was.id);
    const name = today?.domain ?? GONE_SINCE;
    const nodes = domains.get(name) ?? [];
    domains.set(name, nodes);
    nodes.push({
      id: was.id,
      name: was.name,
      gpu_type: today?.node.gpu_type ?? "not known",
      availability: was.availability,
      policy: was.policy,
      standing: was.standing,
      gpus: gpusThen(was, today?.node),
    });
  }
  const sorted = [...domains].sort(([one], [other]) => (one < other ? -1 : 1));
  return { domains: sorted.map(([name, nodes]) => ({ name, nodes: nodes.sort((a, b) => (a.name < b.name ? -1 : 1)) })) };
}

function gpusThen(was: Schemas["PastNode"], today: Schemas["TopologyNode"] | undefined): Schemas["TopologyGpu"][] {
  const holders = new Map(was.held.flatMap((held) => held.gpu_uuids.map((uuid) => [uuid, held] as const)));
  const away = was.availability === "unreachable" || was.availability === "lost";
  const idle: Activity = away ? "unreachable" : "not_held";
  // A GPU that was held stands in its place where that is known, else at the end.
  const places = (today?.gpus ?? []).map(({ uuid, index }) => ({ uuid, index }));
  for (const uuid of holders.keys()) {
    if (!places.some((place) => place.uuid === uuid)) places.push({ uuid, index: places.length });
  }
  while (places.length < was.gpus) places.push({ uuid: `${was.id}/${places.length}`, index: places.length });
  return places.map(({ uuid, index }) => {
    const held = holders.get(uuid);
    if (!held) return { uuid, index, activity: idle };
    return { uuid, index, activity: PHASES[held.phase] ?? "stopping", job_id: held.job_id, job_name: held.job_name };
  });
}
