// When planning stands still, and what that costs.

import type { Overview } from "../api/client";

/** What the server says needs attention of planning itself; in these words where its list is too long to hold its own. */
export const STANDING: Readonly<Record<string, string>> = {
  rounds_given_up: "Rounds give no plan",
  round_late: "A planning round is late",
  planning_paused: "Planning is paused",
};

export interface Stands {
  headline: string;
  ageSeconds?: number;
}

export function planningStands(overview: Overview, nowMs: number): Stands | undefined {
  const { planner, planning_trouble: trouble, attention, attention_by_kind: many } = overview;
  const at = planner?.newest_plan_at;
  const age = at ? { ageSeconds: Math.max(0, (nowMs - Date.parse(at)) / 1_000) } : {};
  if (trouble) return { headline: `Planning gives no plans: ${trouble.message}`, ...age };
  const kind = Object.keys(STANDING).find((one) => (many[one] ?? 0) > 0);
  if (!kind) return undefined;
  return { headline: attention.find((item) => item.kind === kind)?.headline ?? STANDING[kind]!, ...age };
}

/** GPUs that nobody uses and somebody could. */
export function idleGpus(overview: Overview): number {
  const idle = Object.entries(overview.gpus_by_activity).filter(([activity]) => activity.startsWith("idle"));
  return idle.reduce((sum, [, gpus]) => sum + gpus, 0);
}
