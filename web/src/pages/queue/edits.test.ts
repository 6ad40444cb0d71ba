import { expect, test } from "vitest";
import { asCommand, inWords, leastChoices, leverOf } from "./edits";

const job = { id: "018b", gpus_min: 8, gpus_max: 128, gpu_sizes: [] as number[] };

test("what an edit of the job can do is an edit", () => {
  expect(leverOf([{ kind: "gpus_min", job_id: "018b", gpus_min: 4 }], job)).toEqual({ kind: "edit", edit: { gpusMin: 4 } });
  expect(leverOf([{ kind: "priority", job_id: "018b", priority: 0 }], job)).toEqual({ kind: "edit", edit: { priority: 0 } });
});

test("a size that the specification does not have is no edit", () => {
  const sized = { ...job, gpu_sizes: [8, 16] };
  expect(leverOf([{ kind: "gpus_min", gpus_min: 4 }], sized)).toMatchObject({ kind: "none" });
  expect(leverOf([{ kind: "gpus_min", gpus_min: 8 }], sized)).toMatchObject({ kind: "edit" });
});

test("what is decided elsewhere says where", () => {
  expect(leverOf([{ kind: "quota", project: "nlp", gpus: 16 }], job)).toEqual({ kind: "project", project: "nlp" });
  expect(leverOf([{ kind: "node_back", node_id: "018c", node_name: "h100-0093" }], job)).toEqual({ kind: "node", id: "018c", name: "h100-0093" });
  expect(leverOf([{ kind: "row", row: "few", gpus: 9 }], job)).toEqual({ kind: "policy" });
  const limited = leverOf([{ kind: "time_limit", job_id: "018b", time_limit_seconds: 14_400 }], job);
  expect(limited).toEqual({ kind: "none", why: "set it in a terminal: headway job update 018b --time=240m" });
  for (const kind of ["gpu_type", "force", "what a later server knows"]) {
    expect(leverOf([{ kind }], job).kind).toBe("none");
  }
});

test("what is supposed together is no edit, nor what an older server does not tell", () => {
  expect(leverOf([{ kind: "priority", priority: 75 }, { kind: "force" }], job).kind).toBe("none");
  expect(leverOf([], job).kind).toBe("none");
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
