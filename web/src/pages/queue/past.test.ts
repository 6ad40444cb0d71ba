import { expect, test } from "vitest";
import type { PastJob } from "../jobs/list";
import { whyWaited } from "./past";
import type { PlanSummary, Said, Verdict } from "./queries";

const at = (minute: number) => new Date(minute * 60_000).toISOString();
const job = (id: string, submitted: number) => ({ id, submitted_at: at(submitted) }) as PastJob;
const plan = { id: "p", made_at: at(10) } as PlanSummary;
const verdict = { job_id: "a", gpus: 0, headline: "Needs 8 GPUs; 0 are free", reasons: [] as unknown } as Verdict;
const said: Said = { verdicts: new Map([["a", verdict]]), given: new Map([["b", 8]]) };

test("a job waited for what the plan in force says, and nothing is made up where it says nothing", () => {
  expect(whyWaited(job("a", 1), plan, said)).toEqual({ known: "said", verdict });
  expect(whyWaited(job("b", 1), plan, said)).toEqual({ known: "given", gpus: 8 });
  expect(whyWaited(job("c", 11), plan, said)).toEqual({ known: "later" });
  expect(whyWaited(job("c", 9), plan, said)).toEqual({ known: "unknown" });
  expect(whyWaited(job("a", 1), null, undefined)).toEqual({ known: "no_plan" });
});
