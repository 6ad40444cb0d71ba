import { expect, test } from "vitest";
import { placedFrom } from "./fixture";
import { fleetOf } from "./fleet";
import { GONE_SINCE, placedThen } from "./past";

const now = placedFrom({ r1: { n1: "aa.." } });
const node = { policy: "schedulable", standing: "good", since: "2026-02-01T00:00:00Z" } as const;
const held = { job_id: "job-z", job_name: "z", generation: 3 };

test("nodes stand where they stand today, their GPUs are whose they were", () => {
  const then = placedThen(
    { domains: now.domains as never },
    {
      at: "2026-02-28T00:00:00Z",
      items: [
        { ...node, id: "id-n1", name: "n1", availability: "available", gpus: 4, gpus_healthy: 4, held: [{ ...held, phase: "launching", gpu_uuids: ["n1-2", "n1-3"] }] },
        { ...node, id: "id-gone", name: "gone", availability: "lost", gpus: 2, gpus_healthy: 2, held: [{ ...held, phase: "ended", gpu_uuids: ["gone-0"] }] },
      ],
    },
  );
  expect(then.domains.map((domain) => domain.name)).toEqual([GONE_SINCE, "r1"]);
  const activities = then.domains.map((domain) => domain.nodes[0]!.gpus.map((gpu) => gpu.activity));
  expect(activities).toEqual([
    ["stopping", "unreachable"],
    ["not_held", "not_held", "starting", "starting"],
  ]);
  expect(fleetOf(then).jobs).toEqual([{ id: "job-z", name: "z", gpus: 3, nodes: 2 }]);
});
