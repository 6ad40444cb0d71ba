// Why a job waited at a past moment, as far as the plan that was in force tells. Pure.

import type { PastJob } from "../jobs/list";
import type { PlanSummary, Said, Verdict } from "./queries";

/** `said`: by a verdict; `given`: the plan has GPUs for it; `later`: it came after the plan was made; `unknown`: the plan leaves it out. */
export type Why =
  | { known: "said"; verdict: Verdict }
  | { known: "given"; gpus: number }
  | { known: "later" | "unknown" | "no_plan" };

export interface Waited {
  job: PastJob;
  why: Why;
}

export function whyWaited(job: PastJob, plan: PlanSummary | null | undefined, said: Said | undefined): Why {
  if (!plan) return { known: "no_plan" };
  const verdict = said?.verdicts.get(job.id);
  if (verdict) return { known: "said", verdict };
  const gpus = said?.given.get(job.id) ?? 0;
  if (gpus > 0) return { known: "given", gpus };
  return { known: Date.parse(job.submitted_at) > Date.parse(plan.made_at) ? "later" : "unknown" };
}
