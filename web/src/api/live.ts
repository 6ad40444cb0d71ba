// What the stream says goes into the lists that are on the screen: rows that are known are patched where they stand, twice a second at most;
// who came, went or changed state has the lists asked anew, seldom. Pages that nobody looks at cost nothing.

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import type { EventSourceMessage } from "eventsource-parser";
import { useEffect, useSyncExternalStore } from "react";
import { merged } from "../lib/merge";
import { type Connection, subscribe } from "./stream";

/** Patches are painted no more often than this. */
const PAINT_MS = 500;
/** Lists are asked anew no more often than this, however much happens. */
const ASK_MS = 2_000;

/** Of a job, what lists show and what tells that a list has changed. */
const JOB_FIELDS = [
  ...["state", "state_cause", "state_since", "gpus", "layout", "execution", "global_batch_sequences", "waiting", "eta_seconds"],
  ...["throughput_tokens_per_second", "goodput_tokens_per_second", "efficiency", "noise_scale_tokens", "progress_fraction", "ended_at"],
];

/** Which queries a message outdates, by the first part of their key. */
const OUTDATES: Record<string, readonly string[]> = {
  job: ["jobs", "queue", "overview"],
  jobs: ["jobs", "queue", "overview"],
  node: ["nodes", "overview", "topology"],
  node_gone: ["nodes", "overview", "topology"],
  nodes: ["nodes", "overview", "topology"],
  plan: ["plan", "plans", "queue", "overview", "explain"],
  plans: ["plan", "plans", "queue", "overview"],
  event: ["events"],
  events: ["events"],
};
/** What of a row may move it within a list, out of it or into it. */
const TELLING = ["state", "availability", "policy", "standing"];
const ALL = [...new Set(Object.values(OUTDATES).flat())];

interface Row {
  id: string;
}

class Live {
  private state: Connection = "connecting";
  private readonly listeners = new Set<() => void>();
  private readonly patches = new Map<string, unknown[]>();
  private readonly outdated = new Set<string>();
  private painting: ReturnType<typeof setTimeout> | undefined;
  private asking: ReturnType<typeof setTimeout> | undefined;

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  readonly connection = () => this.state;

  /** Follows the stream until the returned function is called. */
  start(queries: QueryClient): () => void {
    const query = new URLSearchParams({ patch: "true", topics: "jobs,nodes,plans,events", fields: JOB_FIELDS.join(",") });
    const stop = subscribe(query, {
      onMessage: (message) => this.take(message, queries),
      onState: (state) => {
        this.state = state;
        this.listeners.forEach((listener) => listener());
      },
    });
    return () => {
      stop();
      clearTimeout(this.painting);
      clearTimeout(this.asking);
      this.painting = this.asking = undefined;
    };
  }

  private take({ event = "", data }: EventSourceMessage, queries: QueryClient) {
    if (event === "reset") return this.ask(ALL, queries);
    if (event === "job_patch" || event === "node_patch") {
      const patch = JSON.parse(data) as Row & Record<string, unknown>;
      const known = this.patches.get(patch.id);
      if (known) known.push(patch);
      else this.patches.set(patch.id, [patch]);
      this.painting ??= setTimeout(() => this.paint(queries), PAINT_MS);
      if (!TELLING.some((field) => field in patch)) return;
      return this.ask(OUTDATES[event.slice(0, -6)] ?? [], queries);
    }
    this.ask(OUTDATES[event] ?? [], queries);
  }

  /** Cost: the rows of lists that are kept, a few hundred each. */
  private paint(queries: QueryClient) {
    this.painting = undefined;
    for (const key of ["jobs", "nodes"]) {
      queries.setQueriesData<{ items?: Row[] }>({ queryKey: [key, "list"], type: "active" }, (list) => {
        if (!list?.items?.some((row) => this.patches.has(row.id))) return list;
        return { ...list, items: list.items.map((row) => this.patched(row)) };
      });
      for (const id of this.patches.keys()) {
        queries.setQueryData<Row>([key, "one", id], (row) => row && this.patched(row));
      }
    }
    this.patches.clear();
  }

  private patched<T extends Row>(row: T): T {
    return (this.patches.get(row.id) ?? []).reduce<T>((after, patch) => merged(after, patch), row);
  }

  private ask(keys: readonly string[], queries: QueryClient) {
    keys.forEach((key) => this.outdated.add(key));
    if (this.outdated.size === 0) return;
    this.asking ??= setTimeout(() => {
      this.asking = undefined;
      for (const key of this.outdated) void queries.invalidateQueries({ queryKey: [key], type: "active" });
      this.outdated.clear();
    }, ASK_MS);
  }
}

const live = new Live();

/** Follows the stream as long as the component stands. */
export function useLive() {
  const queries = useQueryClient();
  useEffect(() => live.start(queries), [queries]);
}

export function useConnection(): Connection {
  return useSyncExternalStore(live.subscribe, live.connection);
}
