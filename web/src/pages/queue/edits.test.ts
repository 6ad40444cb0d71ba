import { expect, test } from "vitest";
import { asCommand, inWords, leastChoices, leverOf } from "./edits";

const job = { id: "018b", gpus_min: 8, gpus_max: 128, gpu_sizes: [] as number[] };

test("what an edit of the job can do is an edit", () => {
  expect(leverOf("if it accepted 4 GPUs", job)).toEqual({ kind: "edit", edit: { gpusMin: 4 } });
  expect(leverOf("if it accepted 1 GPU", job)).toEqual({ kind: "edit", edit: { gpusMin: 1 } });
  expect(leverOf("if its priority were 75", job)).toEqual({ kind: "edit", edit: { priority: 75 } });
});

test("a size that the specification does not have is no edit", () => {
  const sized = { ...job, gpu_sizes: [8, 16] };
  expect(leverOf("if it accepted 4 GPUs", sized)).toMatchObject({ kind: "none" });
  expect(leverOf("if it accepted 8 GPUs", sized)).toMatchObject({ kind: "edit" });
});

test("what is decided elsewhere says where", () => {
  expect(leverOf("if the quota of nlp were 16 GPUs", job)).toEqual({ kind: "project", project: "nlp" });
  expect(leverOf("if node h100-0093 were back", job)).toEqual({ kind: "node", node: "h100-0093" });
  expect(leverOf("if the row few allowed 9 GPUs", job)).toEqual({ kind: "policy" });
  for (const other of ["if it accepted A100-80G", "if it were forced to start now", "if pigs had wings"]) {
    expect(leverOf(other, job).kind).toBe("none");
  }
});

test("edits read as people say them", () => {
  expect([inWords({ gpusMin: 1 }), inWords({ gpusMin: 4 }), inWords({ priority: 75 })]).toEqual(["1 GPU at least", "4 GPUs at least", "priority 75"]);
  expect(asCommand("018b", { gpusMin: 4 })).toBe("headway job update 018b --min=4");
});

test("the fewest GPUs are what the specification allows, else steps up to the most", () => {
  expect(leastChoices({ ...job, gpu_sizes: [8, 16, 256] })).toEqual([8, 16]);
  expect(leastChoices({ ...job, gpus_min: 3, gpus_max: 5 })).toEqual([1, 2, 3, 4, 5]);
  expect(leastChoices({ ...job, gpus_min: 20, gpus_max: 100 }).slice(-7)).toEqual([20, 24, 32, 48, 64, 96, 100]);
});
