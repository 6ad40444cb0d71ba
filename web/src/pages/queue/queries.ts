// What the queue's page asks: the list with what each filter would show, why one job waits, how predictions fared.

import { keepPreviousData, skipToken, useQuery } from "@tanstack/react-query";
import { type Explanation, api, unwrap } from "../../api/client";
import { POLL_MS } from "../../api/queries";
import type { components } from "../../api/schema";
import { serverSaid } from "../../lib/clock";
import { gather } from "../../lib/gather";

type Schemas = components["schemas"];
export type Queue = Schemas["Queue"];
export type Waiting = Schemas["Waiting"];
export type JobDetail = Schemas["JobDetail"];
export type Verdict = Schemas["Verdict"];
export type PlanSummary = Schemas["PlanSummary"];

export interface QueueFilter {
  project?: string | undefined;
  user?: string | undefined;
  code?: string | undefined;
  type?: string | undefined;
  /** Part of the name. */
  q?: string | undefined;
}

/** For what changes slowly, or costs the server more than a look. */
const SLOW_MS = 15_000;
/** What is still being worked out is asked for again so soon. */
const AGAIN_MS = 3_000;

async function askQueue(query: QueueFilter & { cursor?: string | undefined; limit: number }): Promise<Queue> {
  const queue = await unwrap(api.GET("/api/v1/queue", { params: { query } }));
  serverSaid(queue.at);
  return queue;
}

export function useQueue(filter: QueueFilter, wanted: number) {
  return useQuery({
    queryKey: ["queue", "list", filter, wanted],
    queryFn: () => gather((page) => askQueue({ ...filter, ...page }), wanted, (row) => row.job_id),
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
}

/** With what was asked for, as far as one may see it. */
export function useJobDetail(id: string) {
  return useQuery({
    queryKey: ["jobs", "one", id],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs/{id}", { params: { path: { id } } }))) as JobDetail,
    refetchInterval: POLL_MS,
  });
}

export function useExplanation(id: string) {
  return useQuery({
    queryKey: ["explain", id],
    queryFn: (): Promise<Explanation> => unwrap(api.GET("/api/v1/jobs/{id}/explain", { params: { path: { id } } })),
    refetchInterval: (query) => (query.state.data?.left_out ? AGAIN_MS : SLOW_MS),
  });
}

/** The plan that was in force at a past moment; `null`: there was none, or none of then is kept. */
export function usePlanOf(at: string) {
  return useQuery({
    queryKey: ["plans-at", at],
    queryFn: () => unwrap(api.GET("/api/v1/plans", { params: { query: { at } } })),
    select: ({ items }): PlanSummary | null => items.find((one) => one.state === "adopted") ?? null,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** What a plan says of those to whom it gives nothing, and how many GPUs it gives the others. */
export interface Said {
  verdicts: Map<string, Verdict>;
  given: Map<string, number>;
}

/** It never changes. */
export function useSaid(plan: string | undefined) {
  return useQuery({
    queryKey: ["plan-said", plan],
    queryFn: plan
      ? async (): Promise<Said> => {
          const told = await unwrap(api.GET("/api/v1/plans/{id}", { params: { path: { id: plan }, query: { verdicts: "waiting" } } }));
          return {
            verdicts: new Map(told.verdicts.map((each) => [each.job_id, each])),
            given: new Map(told.assignments.map((each) => [each.job_id, each.gpus])),
          };
        }
      : skipToken,
    staleTime: Number.POSITIVE_INFINITY,
    structuralSharing: false,
  });
}

/** How predicted starts turned out, over all jobs. */
export function useStartCalibration() {
  return useQuery({
    queryKey: ["calibration", "starts"],
    queryFn: async () => {
      const { from, starts } = await unwrap(api.GET("/api/v1/goodput/calibration"));
      return { from, all: starts.find((one) => !one.gpu_type && !one.model_family) };
    },
    staleTime: 60_000,
  });
}
