// What the plan page asks the server. A whole plan names every job's GPUs: it is asked for once, and again only while
// something about it can still change. So its key is none of those that the stream outdates with every round.

import { type QueryClient, keepPreviousData, skipToken, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type Overview, type Plan, api, unwrap } from "../../api/client";
import { useOverview } from "../../api/queries";
import type { components } from "../../api/schema";

type Schemas = components["schemas"];
export type Move = Schemas["Move"];
export type PlanSummary = Schemas["PlanSummary"];
export type PlanChange = Schemas["PlanChange"];
export type PastPlan = Schemas["PastPlan"];
export type Configuration = Schemas["Configuration"];
export type Assignment = Schemas["Assignment"];
export type Topology = Schemas["Topology"];

/** While moves are under way, and while what they brought is still being measured. */
const MOVING_MS = 3_000;
const MEASURED_MS = 30_000;
const LISTS_MS = 15_000;
const MINUTE_MS = 60_000;

/** Where a plan stands, as the overview tells: that it changes makes a plan worth asking for anew. `then`: it is asked for once, whatever became of it. */
export type Standing = "waits" | "in force" | "past" | "then";

export function standing(id: string, overview: Overview | undefined): Standing {
  if (overview?.plans_waiting.includes(id)) return "waits";
  return overview?.plan_id === id ? "in force" : "past";
}

const wholeKey = (id: string, stands: Standing) => ["whole-plan", id, stands] as const;

/** Whether the plan as it was told stands where the overview has it stand: either may be the older of the two. */
function agrees(plan: Plan, stands: Standing): boolean {
  const decided = plan.state !== "proposed" && plan.state !== "adopted";
  return { waits: plan.state === "proposed", "in force": plan.state === "adopted", past: decided, then: true }[stands];
}

/** Whether jobs are still on their way to what the plan gives them. */
export function isUnderWay(plan: Plan): boolean {
  return plan.moves.some((move) => move.outcome && !["done", "overtaken"].includes(move.outcome.state));
}

/** With the verdicts of the jobs that it moves. */
export function useWholePlan(id: string | null | undefined, stands: Standing) {
  return useQuery({
    queryKey: wholeKey(id ?? "", stands),
    queryFn: id ? () => unwrap(api.GET("/api/v1/plans/{id}", { params: { path: { id }, query: { verdicts: "moves" } } })) : skipToken,
    staleTime: ({ state: { data } }) => (data && !agrees(data, stands) ? 0 : Number.POSITIVE_INFINITY),
    refetchInterval: ({ state: { data } }) => {
      if (!data || stands === "then") return false;
      if (!agrees(data, stands) || isUnderWay(data)) return MOVING_MS;
      return data.state === "adopted" && data.moves.length > 0 && MEASURED_MS;
    },
    placeholderData: (before: Plan | undefined) => (before?.id === id ? before : undefined),
    // To find out what is the same in megabytes costs more than to show them anew.
    structuralSharing: false,
  });
}

/** A proposal that a request has just brought need not be asked for, though the overview may not know of it yet. */
export function keepProposal(queries: QueryClient, plan: Plan) {
  for (const stands of ["waits", "past"] as const) queries.setQueryData(wholeKey(plan.id, stands), plan);
}

/** Has a round run on the terms of a former one, and without the moves of some jobs. Its plan moves nothing before it is approved. */
export function propose(terms: Plan["terms"], exclude: string[], key: string, reason = terms?.reason): Promise<Plan> {
  const body = {
    exclude,
    force: terms?.force ?? [],
    scope: { jobs: [], nodes: [], projects: [], ...terms?.scope },
    min_gain_pct: terms?.min_gain_pct ?? null,
    max_moves: terms?.max_moves ?? null,
    reason: reason ?? null,
  };
  return unwrap(api.POST("/api/v1/plans/rebalance", { params: { header: { "Idempotency-Key": key } }, body }));
}

export interface Shown {
  id: string | undefined;
  stands: Standing;
  /** Its state at the past moment that is looked at. */
  then: PlanSummary | undefined;
  /** Whether it is still being found out. */
  asking: boolean;
  error: Error | null;
}

/** Which plan is meant: the one that is named, or the proposal that waits, or the one in force; now, or at a past moment. */
export function useShown(named: string | undefined, at: string | undefined): Shown {
  const overview = useOverview();
  const past = useQuery({
    queryKey: ["plans-at", at],
    queryFn: at === undefined ? skipToken : () => unwrap(api.GET("/api/v1/plans", { params: { query: { at } } })),
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
  });
  const of = at === undefined ? overview : past;
  const asked = { asking: of.isPending, error: of.data === undefined ? of.error : null };
  if (at !== undefined) {
    const items = past.data?.items ?? [];
    const then = named ? items.find((one) => one.id === named) : (items.find((one) => one.state === "proposed") ?? items[0]);
    return { id: named ?? then?.id, stands: "then", then, ...asked };
  }
  // Only the overview knows where a plan stands; where that cannot be told, a plan that is named is shown all the same.
  const known = overview.data !== undefined || overview.error !== null;
  const id = known ? (named ?? overview.data?.plans_waiting[0] ?? overview.data?.plan_id ?? undefined) : undefined;
  return { id, stands: id ? standing(id, overview.data) : "past", then: undefined, ...asked };
}

/** What a plan gives otherwise than another. Neither ever changes. */
export function useDiff(id: string | undefined, against: string | null | undefined) {
  return useQuery({
    queryKey: ["plan-diff", id, against],
    queryFn:
      id && against && id !== against
        ? () => unwrap(api.GET("/api/v1/plans/{id}/diff", { params: { path: { id }, query: { against } } }))
        : skipToken,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** Which GPUs nodes have, in their order: of a map that changes seldom. */
export function useGpus() {
  return useQuery({
    queryKey: ["gpus-by-node"],
    queryFn: () => unwrap(api.GET("/api/v1/topology")),
    staleTime: 5 * MINUTE_MS,
    structuralSharing: false,
  });
}

/** Plans that were carried out, with what came of them; the newest first, page by page. */
export function useReceipts() {
  return useInfiniteQuery({
    queryKey: ["receipts"],
    queryFn: ({ pageParam: cursor }) => unwrap(api.GET("/api/v1/plans/history", { params: { query: cursor ? { cursor } : {} } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: LISTS_MS,
  });
}

/** All plans, those that came to nothing too. */
export function useAllPlans() {
  return useInfiniteQuery({
    queryKey: ["all-plans"],
    queryFn: ({ pageParam: cursor }) => unwrap(api.GET("/api/v1/plans", { params: { query: cursor ? { cursor } : {} } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: LISTS_MS,
  });
}
