import { expect, test } from "vitest";
import type { AllocationRecord } from "../asks";
import { choices, chosen, writers } from "./ranks";

const slices = (sizes: number[]) =>
  sizes.map((many, index) => ({ node_id: `id${index}`, node_name: `n${index}`, gpu_uuids: Array.from({ length: many }, (_, gpu) => `${index}-${gpu}`) }));
const allocation = (sizes: number[]) => ({ slices: slices(sizes) }) as unknown as AllocationRecord;
const job = (per: string) => ({ spec: { run: { per } } }) as never;

test("a process for each GPU, or for each node under its first rank", () => {
  expect(writers(job("gpu"), allocation([2, 1])).map((one) => [one.rank, one.node])).toEqual([[0, "n0"], [1, "n0"], [2, "n1"]]);
  expect(writers(job("node"), allocation([8, 8])).map((one) => one.rank)).toEqual([0, 8]);
});

test("choices mean ranks that write", () => {
  const of = writers(job("gpu"), allocation([4, 4]));
  expect(choices(of).map((one) => one.value).slice(0, 3)).toEqual(["all", "nodes", "0"]);
  expect(chosen(of, undefined)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  expect(chosen(of, "nodes")).toEqual([0, 4]);
  expect(chosen(of, "1,6-9")).toEqual([1, 6, 7]);
  expect(chosen(of, "99")).toEqual(chosen(of, undefined));
  expect(chosen(of, "<script>")).toEqual(chosen(of, undefined));
});

test("of more ranks than are read at once there are spans", () => {
  const of = writers(job("gpu"), allocation(Array.from({ length: 16 }, () => 8)));
  expect(choices(of)[0]!.value).toBe("0-63");
  expect(choices(of)[1]!.value).toBe("64-127");
  expect(chosen(of, undefined)).toEqual([0]);
  expect(chosen(of, "64-127").length).toBe(64);
});
