import { expect, test } from "vitest";
import type { Goodput, JobGoodput } from "./asked";
import { compared, foretold, meanErrors, verdict } from "./jobs";

function job(id: string, told: Partial<JobGoodput>): JobGoodput {
  return { job_id: id, job_name: id, gpus: 8, ...told };
}

function goodput(jobs: JobGoodput[], items: Goodput["items"] = []): Goodput {
  return { at: "1970-01-01T00:00:00Z", goodput_tokens_per_second: 0, throughput_tokens_per_second: 0, speed_up_sum: 0, jobs, items };
}

test("a job is held against its static share, and the others are counted by why they are not", () => {
  const measured = { throughput_tokens_per_second: 200, efficiency: 0.8 };
  const jobs = [job("a", measured), job("b", {}), job("c", measured), job("d", measured)];
  const split = (job_id: string, rate: number) => ({ job_id, gpus: 4, goodput_tokens_per_second: rate });
  const { jobs: found, ...others } = compared(goodput(jobs, [split("a", 100), split("d", 0)]));
  expect(found.map((one) => [one.job.job_id, one.faster, one.splitGpus])).toEqual([["a", 2, 4]]);
  expect(found[0]!.gain).toBeCloseTo(1.6);
  expect(others).toEqual({ unmeasured: 1, withoutSplit: 1, without: 1 });
});

test("errors are told per job and per GPU", () => {
  const rates = (measured: number) => ({ goodput_tokens_per_second: measured, predicted_goodput_tokens_per_second: 100 });
  const jobs = foretold(goodput([job("a", { ...rates(110), gpus: 24 }), job("b", rates(70)), job("c", {})]));
  expect(jobs.map((one) => one.job.job_id)).toEqual(["b", "a"]);
  const means = meanErrors(jobs)!;
  expect(means.byJob).toBeCloseTo(0.2);
  expect(means.byGpus).toBeCloseTo(0.15);
  expect(meanErrors([])).toBeUndefined();
});

test("bands are judged beyond chance alone", () => {
  expect(verdict(0.5, 4)).toBe("as it should be");
  expect(verdict(0.5, 100)).toBe("too narrow");
  expect(verdict(1, 1_000)).toBe("too wide");
  expect(verdict(null, 10)).toBeUndefined();
});
