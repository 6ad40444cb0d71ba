import { expect, test } from "vitest";
import { fleetOf } from "./fleet";
import { measuredOf, sharesOf } from "./queries";

const node = (id: string, gpus: number) => ({
  ...({ id, name: id, gpu_type: "H100-80G", availability: "available", policy: "schedulable", standing: "trusted" } as const),
  gpus: Array.from({ length: gpus }, (_, index) => ({ uuid: `${id}-${index}`, index, activity: "training" })),
});

test("each GPU of the map has the share that its own column tells, and what is not measured has none", () => {
  // The map is by domain, the columns by name.
  const fleet = fleetOf({ domains: [{ name: "a", nodes: [node("n2", 2)] }, { name: "b", nodes: [node("n1", 1)] }] });
  const columns = { nodes: [{ id: "n1", name: "n1" }, { id: "n2", name: "n2" }], node: [0, 1, 1], utilisation_pct: [25, null, 100] };
  expect([...sharesOf(fleet, measuredOf(columns))]).toEqual([Number.NaN, 1, 0.25]);
});
