import { expect, test } from "vitest";
import type { Overview } from "../api/client";
import { idleGpus, planningStands } from "./incident";

const NOW = Date.parse("2026-01-01T00:10:00Z");
const calm = {
  attention: [],
  attention_by_kind: {},
  planner: { newest_plan_at: "2026-01-01T00:00:00Z", under_way_seconds: null },
  gpus_by_activity: { training: 40, idle_waiting: 1_600, idle_no_demand: 22, starting: 2 },
} as unknown as Overview;

test("a calm cluster has no incident, however old its plan", () => {
  expect(planningStands(calm, NOW)).toBeUndefined();
});

test("rounds that give no plan are told with the age of the newest", () => {
  const trouble = { ...calm, planning_trouble: { message: "the round took longer than 60 s", rounds_given_up: 3, since: "2026-01-01T00:01:00Z" } };
  expect(planningStands(trouble, NOW)).toEqual({ headline: "Planning gives no plans: the round took longer than 60 s", ageSeconds: 600 });
});

test("a round that the server calls late is told in its words, and in ours where its list is too long", () => {
  const late = { ...calm, attention: [{ kind: "round_late", headline: "A round has been under way for 45 s" }], attention_by_kind: { round_late: 1 } } as unknown as Overview;
  expect(planningStands(late, NOW)).toEqual({ headline: "A round has been under way for 45 s", ageSeconds: 600 });
  expect(planningStands({ ...late, attention: [] }, NOW)?.headline).toBe("A planning round is late");
});

test("every idle GPU counts, whyever it is", () => {
  expect(idleGpus(calm)).toBe(1_622);
});
