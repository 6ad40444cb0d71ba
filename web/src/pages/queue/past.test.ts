import { expect, test } from "vitest";
import type { PastJob } from "../jobs/list";
import { waited } from "./past";
import type { PlanSummary, Said, Verdict } from "./queries";

const at = (minute: number) => new Date(minute * 60_000).toISOString();
const job = (id: string, submitted: number) => ({ id, submitted_at: at(submitted) }) as PastJob;
const plan = { id: "p", made_at: at(10) } as PlanSummary;
const verdict = { job_id: "a", gpus: 0, headline: "Needs 8 GPUs; 0 are free", reasons: [] as unknown } as Verdict;
const said: Said = { verdicts: new Map([["a", verdict]]), given: new Map([["b", 8]]) };

test("a job waited for what the plan in force says, and nothing is made up where it says nothing", () => {
  expect(waited(job("a", 1), plan, said)).toMatchObject({ why: "said", verdict });
  expect(waited(job("b", 1), plan, said)).toMatchObject({ why: "given", gpus: 8 });
  expect(waited(job("c", 11), plan, said).why).toBe("later");
  expect(waited(job("c", 9), plan, said).why).toBe("unknown");
  expect(waited(job("a", 1), null, undefined).why).toBe("no_plan");
});
