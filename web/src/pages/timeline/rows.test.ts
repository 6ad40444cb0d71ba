import { expect, test } from "vitest";
import { type Lane, rowsOf, under } from "./rows";

const at = (minute: number) => new Date(minute * 60_000).toISOString();
const node: Lane = {
  id: "n1",
  name: "h100-0001",
  deleted: false,
  bars: [{ from: at(0), to: at(60), state: "available", gpus: 8, gpus_healthy: 8, seconds_by_state: {} }],
  held: [
    { job_id: "a", gpus: 4, from: at(0), to: at(30) },
    { job_id: "b", gpus: 4, from: at(10), to: null },
    { job_id: "c", gpus: 4, from: at(30), to: at(50) },
  ],
};
const job: Lane = {
  id: "a",
  name: "sweep",
  deleted: false,
  held: [],
  bars: [{ from: at(0), to: at(60), state: "running", seconds_by_state: { queued: 600, running: 3_000 } }],
};

test("jobs on a node are drawn beside each other, and who comes after takes the place of who left", () => {
  const [row] = rowsOf([node], 60 * 60_000, []);
  expect(row!.held.map((one) => [one.job, one.slot])).toEqual([["a", 0], ["b", 4], ["c", 0]]);
  expect(row!.held[1]!.to).toBe(60 * 60_000);
});

test("states that are drawn together keep their shares", () => {
  const [row] = rowsOf([job], 0, []);
  expect(row!.bars[0]!.shares).toEqual([{ state: "running", share: 5 / 6 }, { state: "queued", share: 1 / 6 }]);
});

test("a fault goes before what it lies upon", () => {
  const fault = { seq: 7, at: at(20), actor: "scheduler", verb: "node.lost", message: "lost", node_id: "n1", job_id: "j9", job_name: "llama" };
  const [row] = rowsOf([node], 60 * 60_000, [fault]);
  expect(under(row!, 20 * 60_000, 0.2, 1_000)?.kind).toBe("fault");
  expect(row!.faults[0]!.with).toBe("llama");
  const held = under(row!, 15 * 60_000, 0.75, 1_000);
  expect(held?.kind === "held" && held.held.job).toBe("b");
});
