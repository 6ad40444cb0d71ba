// What happened to the whole cluster, as charts draw it over themselves.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type EventRecord, api, unwrap } from "../../api/client";
import type { Mark } from "../../chart/marks";
import { type WindowName, spanOf } from "../../parts/WindowPicker";
import { FIGURES_SECONDS } from "./asked";

const TONES: Record<string, Mark["tone"]> = {
  ...{ "node.lost": "bad", "gpu.broken": "bad", "plan.given_up": "bad", "plan.failed": "bad", "cluster.restored": "bad" },
  ...{ "node.quarantined": "warn", "plan.paused": "warn", "scheduler.took_over": "warn" },
  ...{ "plan.resumed": "good", "plan.recovered": "good", "policy.changed": "plain" },
};
const MARKS_AT_MOST = 100;

/** The newest of them within a window. */
export function useTold(window: WindowName, at: string | undefined) {
  return useQuery({
    queryKey: ["marks", window, at],
    queryFn: async () => {
      const { from: since, to: until } = spanOf(window, at);
      const query = { verb: Object.keys(TONES).join(","), since, limit: MARKS_AT_MOST, ...(until ? { until } : {}) };
      return (await unwrap(api.GET("/api/v1/events", { params: { query } }))).items;
    },
    refetchInterval: at ? false : FIGURES_SECONDS * 1_000,
    placeholderData: keepPreviousData,
  });
}

export function marksOf(told: EventRecord[] | undefined): Mark[] {
  return (told ?? []).map((event) => ({ seq: event.seq, at: Date.parse(event.at) / 1_000, label: event.message, tone: TONES[event.verb] ?? "plain" }));
}
