import { expect, test } from "vitest";
import type { Overview } from "../api/client";
import { idleGpus, planningStands } from "./incident";

const NOW = Date.parse("2026-01-01T00:10:00Z");
const calm = {
  attention: [],
  planner: { newest_plan_at: "2026-01-01T00:00:00Z", under_way_seconds: null },
  gpus_by_activity: { training: 40, idle_waiting: 1_600, idle_no_demand: 22, starting: 2 },
} as unknown as Overview;

test("a calm cluster has no incident, however old its plan", () => {
  expect(planningStands(calm, NOW)).toBeUndefined();
});

test("rounds that give no plan are told with the age of the newest", () => {
  const trouble = { ...calm, planning_trouble: { message: "the round took longer than 60 s", rounds_given_up: 3, since: "2026-01-01T00:01:00Z" } };
  expect(planningStands(trouble, NOW)).toEqual({ headline: "Planning gives no plans: the round took longer than 60 s", ageSeconds: 600 });
  const late = { ...calm, planner: { ...calm.planner!, under_way_seconds: 45 } };
  expect(planningStands(late, NOW)?.headline).toContain("45 s");
});

test("every idle GPU counts, whyever it is", () => {
  expect(idleGpus(calm)).toBe(1_622);
});
