// Why a job waited at a past moment, as far as the plan that was in force tells. Pure.

import type { PastJob } from "../jobs/list";
import type { PlanSummary, Said, Verdict } from "./queries";

/** `said`: by a verdict; `given`: the plan has GPUs for it; `later`: it came after the plan was made; `unknown`: the plan leaves it out. */
export type Why = "said" | "given" | "later" | "unknown" | "no_plan";

export interface Waited {
  job: PastJob;
  why: Why;
  verdict: Verdict | undefined;
  /** That the plan gives it. */
  gpus: number;
}

export function waited(job: PastJob, plan: PlanSummary | null | undefined, said: Said | undefined): Waited {
  const verdict = said?.verdicts.get(job.id);
  const gpus = said?.given.get(job.id) ?? 0;
  const later = plan != null && Date.parse(job.submitted_at) > Date.parse(plan.made_at);
  const why = !plan ? "no_plan" : verdict ? "said" : gpus > 0 ? "given" : later ? "later" : "unknown";
  return { job, why, verdict, gpus };
}
