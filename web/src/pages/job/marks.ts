// Events as marks over charts.

import type { EventRecord } from "../../api/client";
import type { Mark } from "../../chart/marks";
import { seconds } from "./shape";
import { without } from "./words";

const BAD = new Set(["job.gang_broken", "job.hung", "job.failed", "job.mistaken", "job.loss_not_finite"]);
const WARN = new Set(["job.preempted", "job.stopping", "job.held", "job.requeued", "job.straggler", "job.loss_spike"]);

/** A mark that leads to its event. */
export interface JobMark extends Mark {
  seq: number;
}

export function marksOf(name: string, events: readonly EventRecord[]): JobMark[] {
  return events.map((event) => ({
    seq: event.seq,
    at: seconds(event.at),
    label: without(name, event.message),
    tone: BAD.has(event.verb) ? "bad" : WARN.has(event.verb) ? "warn" : "plain",
  }));
}
