// What can be edited of a job that waits, and which edit a counterfactual of the planner's stands for.

import { type Job, api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";
import type { Doing } from "../../parts/Act";

/** A change of one job. */
export interface Edit {
  gpusMin?: number;
  priority?: number;
}

/** Where what would help is decided: in an edit of the job, elsewhere, or nowhere. */
export type Lever =
  | { kind: "edit"; edit: Edit }
  | { kind: "project"; project: string }
  | { kind: "policy" }
  | { kind: "node"; id: string; name: string }
  | { kind: "none"; why: string };

export type SupposedChange = components["schemas"]["SupposedChange"];
type Sized = Pick<Job, "id" | "gpus_min" | "gpus_max" | "gpu_sizes">;

/** From this priority on only admins give it. */
export const ADMIN_PRIORITY = 76;

/** Of what a counterfactual supposes; what is supposed together only together helps. */
export function leverOf(changes: readonly SupposedChange[], job: Sized): Lever {
  const [change, ...others] = changes;
  if (!change || others.length > 0) return { kind: "none", why: "no edit of the job does this" };
  const { gpus_min: gpusMin, priority, project, node_id: id, node_name: name } = change;
  switch (change.kind) {
    case "gpus_min": {
      const fixed = gpusMin == null || (job.gpu_sizes.length > 0 && !job.gpu_sizes.includes(gpusMin));
      return fixed ? { kind: "none", why: `its specification allows ${job.gpu_sizes.join(", ")} GPUs alone: submit it anew` } : { kind: "edit", edit: { gpusMin } };
    }
    case "priority":
      if (priority != null) return { kind: "edit", edit: { priority } };
      break;
    case "quota":
      if (project != null) return { kind: "project", project };
      break;
    case "node_back":
      if (id != null) return { kind: "node", id, name: name ?? id };
      break;
    case "row":
      return { kind: "policy" };
    case "time_limit": {
      const seconds = Math.floor(change.time_limit_seconds ?? 0);
      return { kind: "none", why: `set it in a terminal: headway job update ${job.id} --time=${seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m`}` };
    }
    case "gpu_type":
      return { kind: "none", why: "GPU types are fixed when a job is submitted: submit it anew" };
    case "force":
      return { kind: "none", why: "nothing forces a start: a higher priority comes closest" };
  }
  return { kind: "none", why: "no edit of the job does this" };
}

/** "4 GPUs at least", "priority 75". */
export function inWords({ gpusMin, priority }: Edit): string {
  return gpusMin !== undefined ? `${gpusMin} ${gpusMin === 1 ? "GPU" : "GPUs"} at least` : `priority ${priority}`;
}

/** The same from a terminal. */
export function asCommand(id: string, { gpusMin, priority }: Edit): string {
  return gpusMin !== undefined ? `headway job update ${id} --min=${gpusMin}` : `headway job update ${id} --priority=${priority}`;
}

/** Up to this every number is offered as the fewest GPUs; beyond it steps of a half or a third. */
const ONE_BY_ONE = 16;

/** The numbers of GPUs that can be the fewest for a job: what its specification allows, else what people think in. */
export function leastChoices({ gpu_sizes: sizes, gpus_min: min, gpus_max: max }: Sized): number[] {
  const ladder: number[] = [];
  for (let at = 1; at <= Math.min(max, ONE_BY_ONE); at++) ladder.push(at);
  for (let at = ONE_BY_ONE; at < max; at *= 2) ladder.push(at * 1.5, at * 2);
  const all = sizes.length > 0 ? [...sizes, min] : [...ladder, min, max];
  return [...new Set(all)].filter((gpus) => gpus <= max).sort((one, other) => one - other);
}

/** A job as it would be, and what would come of it: the reply to a dry run; in earnest the job alone. */
export type Supposed = Job & { foreseen?: components["schemas"]["Foreseen"] };

/**
 * Sizes go by `resize`, which of a job that waits changes what `PATCH` does; its dry run has the planner solve the round once more with them, and
 * refuses what can never be.
 */
export async function edit(job: Sized, { gpusMin, priority }: Edit, doing: Doing): Promise<Supposed> {
  if (gpusMin !== undefined) {
    const body = { min: gpusMin, max: job.gpus_max, ...because(doing) };
    return unwrap(api.POST("/api/v1/jobs/{id}/resize", { params: asked(job.id, doing), body }));
  }
  const query = { dry_run: doing.dryRun, ...(doing.reason ? { reason: doing.reason } : {}) };
  return unwrap(api.PATCH("/api/v1/jobs/{id}", { params: { path: { id: job.id }, query }, body: { priority: priority ?? null } }));
}

const asked = (id: string, { dryRun, key }: Doing) => ({ path: { id }, query: { dry_run: dryRun }, header: { "Idempotency-Key": key } });
const because = ({ reason }: Doing) => ({ reason: reason ?? null });

export async function hold(id: string, doing: Doing): Promise<Supposed> {
  return unwrap(api.POST("/api/v1/jobs/{id}/hold", { params: asked(id, doing), body: because(doing) }));
}

export async function release(id: string, doing: Doing): Promise<Supposed> {
  return unwrap(api.POST("/api/v1/jobs/{id}/release", { params: asked(id, doing), body: because(doing) }));
}

export async function cancel(id: string, doing: Doing): Promise<Supposed> {
  return unwrap(api.POST("/api/v1/jobs/{id}/cancel", { params: asked(id, doing), body: because(doing) }));
}
