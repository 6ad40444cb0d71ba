// What happens, as the log calls it: groups that people look for, and how each kind is shown.

import type { Tone } from "../../lib/colour";

/** What breaks, or takes work away from somebody. */
export const FAULTS = [
  ...["node.lost", "node.unreachable", "node.quarantined", "node.condition", "gpu.broken"],
  ...["job.failed", "job.gang_broken", "job.hung", "job.mistaken"],
];

/** What a person would want to be told of the whole cluster: not each checkpoint, and not each step of a start. */
export const NEWS = [
  ...FAULTS,
  ...["job.submitted", "job.granted", "job.moved", "job.preempted", "job.succeeded", "job.cancelled"],
  ...["node.registered", "policy.changed", "plan.proposed", "plan.given_up", "plan.failed"],
];

export interface Group {
  name: string;
  verbs: readonly string[];
}

/** Twenty verbs at most, as many as the server takes. */
export const GROUPS: readonly Group[] = [
  { name: "faults", verbs: FAULTS },
  { name: "plans", verbs: ["plan.proposed", "plan.adopted", "plan.rejected", "plan.refused", "plan.failed", "plan.expired", "plan.given_up"] },
  { name: "starts and moves", verbs: ["job.granted", "job.started", "job.training", "job.moved", "job.returned", "job.preempted"] },
  { name: "submits and ends", verbs: ["job.submitted", "job.succeeded", "job.failed", "job.cancelled", "job.requeued"] },
  {
    name: "nodes",
    verbs: [
      ...["node.registered", "node.available", "node.unreachable", "node.lost", "node.quarantined", "node.probation"],
      ...["node.draining", "node.leaving", "node.stays", "node.cordoned", "node.uncordoned", "node.deleted"],
    ],
  },
  {
    name: "rules",
    verbs: [
      ...["policy.changed", "plan.paused", "plan.resumed", "project.created", "project.changed", "project.deleted"],
      ...["reservation.made", "reservation.began", "reservation.ended", "reservation.cancelled"],
    ],
  },
];

/** Others that are worth offering to whoever types. */
const FURTHER = [
  ...["job.batch_changed", "job.batch_contradicted", "job.batch_taken_back", "job.batch_held", "job.layout_changed", "job.checkpoint_requested", "job.held", "job.released", "job.pinned", "job.unpinned"],
  ...["job.straggler", "job.loss_spike", "job.idle_gpus", "job.stopping", "job.unblocked", "job.resized", "gpu.healed", "scheduler.took_over"],
];
export const KNOWN: readonly string[] = [...new Set([...GROUPS.flatMap((group) => group.verbs), ...FURTHER])].sort();

/** The group that a filter on verbs is, whatever their order. */
export function groupOf(verbs: string | undefined): Group | undefined {
  if (!verbs) return undefined;
  const wanted = verbs.split(",").sort().join();
  return GROUPS.find((group) => [...group.verbs].sort().join() === wanted);
}

const GOOD = new Set(["job.succeeded", "job.training", "node.available", "node.trusted", "gpu.healed", "plan.recovered"]);
const WARN = new Set([
  ...["job.preempted", "job.stopping", "job.straggler", "job.loss_spike", "job.loss_not_finite", "job.progress_silent", "job.idle_gpus"],
  ...["job.requeued", "job.cancelled", "job.notify_failed", "job.report_refused", "job.left_out"],
  ...["job.batch_contradicted", "job.batch_taken_back"],
  ...["node.draining", "node.leaving", "node.cordoned", "node.probation", "node.left_out", "node.refused", "node.ahead"],
  ...["plan.refused", "plan.unmet", "plan.expired", "plan.rejected", "plan.paused", "clock.doubted", "scheduler.took_over"],
]);
const BAD = new Set([...FAULTS, "plan.failed", "plan.given_up", "store.away"]);

const GLYPHS: Record<Tone, string> = { good: "✓", warn: "▲", bad: "✕", muted: "•", plain: "•" };

export function verbShown(verb: string): { glyph: string; tone: Tone } {
  const tone = BAD.has(verb) ? "bad" : WARN.has(verb) ? "warn" : GOOD.has(verb) ? "good" : "plain";
  return { glyph: GLYPHS[tone], tone };
}
