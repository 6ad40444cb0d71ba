// What this page alone asks. Its keys begin with "job", so that other jobs' changes do not have it all asked anew; those of its own do.

import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { type Explanation, type Job, api, unwrap } from "../../api/client";
import { POLL_MS, useJob } from "../../api/queries";
import type { components } from "../../api/schema";
import { serverNow } from "../../lib/clock";
import type { Asked } from "../../parts/Panel";

type Schemas = components["schemas"];
export type JobDetail = Schemas["JobDetail"];
type PastJob = Schemas["PastJob"];
export type AllocationRecord = Schemas["AllocationRecord"];
export type Configuration = Schemas["Configuration"];
export type Curve = Schemas["Curve"];
export type CurvePoint = Schemas["CurvePoint"];
export type Move = Schemas["Move"];
export type Checkpoint = Schemas["Checkpoint"];

const ENDED = new Set(["succeeded", "failed", "cancelled"]);

export function hasEnded(state: string): boolean {
  return ENDED.has(state);
}

/** How far back the charts look. */
export const SPANS = { "1h": 3_600_000, "24h": 86_400_000, all: undefined } as const;
export type Span = keyof typeof SPANS;

/** About one for each pixel of a wide window. */
const MOST_POINTS = 1_000;
const EVENTS_A_PAGE = 100;

/** What happens to a job that its charts show; the server takes twenty at most. */
const MARKED = [
  ...["job.granted", "job.moved", "job.returned", "job.started", "job.preempted", "job.stopping", "job.gang_broken", "job.hung", "job.mistaken"],
  ...["job.failed", "job.batch_changed", "job.layout_changed", "job.changed", "job.resized", "job.held", "job.released", "job.requeued"],
  ...["job.straggler", "job.loss_spike", "job.loss_not_finite"],
];

/** The job, with its specification where the reader may see it. */
export function useJobDetail(id: string): Asked<JobDetail> {
  // Of one job the server always tells these, too.
  return useJob(id) as Asked<Job> as Asked<JobDetail>;
}

/** The job as it was at a past moment. */
export function usePastJob(id: string, at: string | undefined) {
  return useQuery({
    queryKey: ["job", id, "at", at],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs/{id}", { params: { path: { id }, query: { at: at! } } }))) as PastJob,
    enabled: at !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** Has everything about the job asked anew once its state or its generation is another. */
export function useFresh(id: string, job: JobDetail | undefined) {
  const queries = useQueryClient();
  const known = useRef<string>(undefined);
  const now = job && `${id} ${job.state} ${job.generation} ${job.version}`;
  useEffect(() => {
    if (now === undefined) return;
    if (known.current !== undefined && known.current !== now) void queries.invalidateQueries({ queryKey: ["job", id] });
    known.current = now;
  }, [queries, id, now]);
}

export function useSeries(job: JobDetail, span: Span, at: string | undefined) {
  const { id } = job;
  return useQuery({
    queryKey: ["job", id, "series", span, at],
    queryFn: async () => {
      const back = SPANS[span];
      const end = at ? Date.parse(at) : serverNow();
      const query = { ...(back ? { from: new Date(end - back).toISOString() } : {}), ...(at ? { to: at } : {}), max_points: MOST_POINTS };
      return (await unwrap(api.GET("/api/v1/jobs/{id}/series", { params: { path: { id }, query } }))).points;
    },
    refetchInterval: at || hasEnded(job.state) ? false : 2 * POLL_MS,
    placeholderData: keepPreviousData,
  });
}

/** Oldest first. */
export function useAllocations(job: JobDetail, at: string | undefined) {
  const { id } = job;
  return useQuery({
    queryKey: ["job", id, "allocations"],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs/{id}/allocations", { params: { path: { id } } }))).items,
    select: (items) => (at ? asOf(items, Date.parse(at)) : items),
    refetchInterval: at || hasEnded(job.state) ? false : 6 * POLL_MS,
  });
}

/** Allocations as they were: what came later is not known then. */
function asOf(items: AllocationRecord[], moment: number): AllocationRecord[] {
  const then = (time: string | null | undefined) => (time && Date.parse(time) <= moment ? time : null);
  return items
    .filter((one) => Date.parse(one.granted_at) <= moment)
    .map((one) => ({ ...one, training_at: then(one.training_at), ended_at: then(one.ended_at) }));
}

export function useCurve(job: JobDetail) {
  const { id } = job;
  return useQuery({
    queryKey: ["job", id, "curve"],
    queryFn: () => unwrap(api.GET("/api/v1/jobs/{id}/curve", { params: { path: { id } } })),
    refetchInterval: hasEnded(job.state) ? false : 12 * POLL_MS,
  });
}

/** Each plan has it asked anew. */
export function useExplanation(job: JobDetail) {
  const { id } = job;
  return useQuery({
    queryKey: ["explain", id],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs/{id}/explain", { params: { path: { id } } }))) as Explanation,
    refetchInterval: hasEnded(job.state) ? false : 12 * POLL_MS,
  });
}

export function useGpuTime(job: JobDetail) {
  const { id } = job;
  return useQuery({
    queryKey: ["job", id, "goodput"],
    queryFn: () => unwrap(api.GET("/api/v1/jobs/{id}/goodput", { params: { path: { id } } })),
    refetchInterval: hasEnded(job.state) ? false : 2 * POLL_MS,
  });
}

/** Newest first. */
export function useCheckpoints(job: JobDetail, at: string | undefined) {
  const { id } = job;
  return useQuery({
    queryKey: ["job", id, "checkpoints"],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs/{id}/checkpoints", { params: { path: { id } } }))).items,
    select: (items) => (at ? items.filter((one) => Date.parse(one.committed_at) <= Date.parse(at)) : items),
    refetchInterval: at || hasEnded(job.state) ? false : 2 * POLL_MS,
  });
}

/** What the charts mark, the newest of it. */
export function useMarkedEvents(job: JobDetail, at: string | undefined) {
  const { id } = job;
  return useQuery({
    queryKey: ["job", id, "marked", at],
    queryFn: async () => {
      const query = { verb: MARKED.join(","), limit: 200, ...(at ? { until: at } : {}) };
      return (await unwrap(api.GET("/api/v1/jobs/{id}/events", { params: { path: { id }, query } }))).items;
    },
    refetchInterval: at || hasEnded(job.state) ? false : 2 * POLL_MS,
  });
}

/** Newest first, page by page; `verbs` comma-separated. */
export function useJobEvents(job: JobDetail, verbs: string | undefined, at: string | undefined) {
  const { id } = job;
  return useInfiniteQuery({
    queryKey: ["job", id, "events", verbs, at],
    queryFn: ({ pageParam }) => {
      const query = {
        limit: EVENTS_A_PAGE,
        ...(verbs ? { verb: verbs } : {}),
        ...(at ? { until: at } : {}),
        ...(pageParam ? { cursor: Number(pageParam) } : {}),
      };
      return unwrap(api.GET("/api/v1/jobs/{id}/events", { params: { path: { id }, query } }));
    },
    initialPageParam: "",
    getNextPageParam: (page) => page.next_cursor || undefined,
    // Where somebody has gone back several pages those are not read again and again.
    refetchInterval: (query) => (at || hasEnded(job.state) || (query.state.data?.pages.length ?? 0) > 1 ? false : POLL_MS),
    placeholderData: keepPreviousData,
  });
}

export function useChain(event: number | undefined) {
  return useQuery({
    queryKey: ["events", "chain", event],
    queryFn: async () => (await unwrap(api.GET("/api/v1/events/{id}/chain", { params: { path: { id: event! } } }))).items,
    enabled: event !== undefined,
    staleTime: 10_000,
  });
}

/** When the job is expected to have reached its target, with first and last decile. */
export function useEnd(job: JobDetail, at: string | undefined) {
  const { id } = job;
  return useQuery({
    queryKey: ["job", id, "end"],
    queryFn: async () => {
      // Of the span that is asked for nothing is shown: a short one costs little.
      const from = new Date(serverNow() - 600_000).toISOString();
      const timeline = await unwrap(api.GET("/api/v1/timeline", { params: { query: { group: "job", job: id, from, limit: 1 } } }));
      return timeline.lanes.find((lane) => lane.id === id)?.predicted_end ?? null;
    },
    enabled: at === undefined && !hasEnded(job.state),
    refetchInterval: 12 * POLL_MS,
  });
}

/** What a plan promised this job, and what came of it. Of the plan, which may tell of thousands of jobs, no more is kept. */
export function usePlannedMove(job: JobDetail, plan: string | undefined) {
  const { id } = job;
  return useQuery({
    queryKey: ["job", id, "move", plan],
    queryFn: async () => {
      const { moves } = await unwrap(api.GET("/api/v1/plans/{id}", { params: { path: { id: plan! }, query: { verdicts: "none" } } }));
      return moves.find((move) => move.job_id === id) ?? null;
    },
    enabled: plan !== undefined,
    staleTime: 6 * POLL_MS,
  });
}
