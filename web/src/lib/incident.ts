// When planning stands still, and what that costs.

import type { Overview } from "../api/client";

/** A round that has been under way for so long is late: rounds take seconds, and are given up after a minute. */
const LATE_ROUND_SECONDS = 20;

/** What the server says needs attention of planning itself. */
export const STANDING: ReadonlySet<string> = new Set(["rounds_given_up", "round_late", "planning_paused"]);

export interface Stands {
  headline: string;
  ageSeconds?: number;
}

export function planningStands(overview: Overview, nowMs: number): Stands | undefined {
  const { planner, planning_trouble: trouble } = overview;
  const at = planner?.newest_plan_at;
  const age = at ? { ageSeconds: Math.max(0, (nowMs - Date.parse(at)) / 1_000) } : {};
  if (trouble) return { headline: `Planning gives no plans: ${trouble.message}`, ...age };
  const late = overview.attention.find((item) => STANDING.has(item.kind));
  if (late) return { headline: late.headline, ...age };
  const underWay = planner?.under_way_seconds ?? 0;
  if (underWay > LATE_ROUND_SECONDS) return { headline: `A planning round has been under way for ${Math.round(underWay)} s.`, ...age };
  return undefined;
}

/** GPUs that nobody uses and somebody could. */
export function idleGpus(overview: Overview): number {
  const idle = Object.entries(overview.gpus_by_activity).filter(([activity]) => activity.startsWith("idle"));
  return idle.reduce((sum, [, gpus]) => sum + gpus, 0);
}
