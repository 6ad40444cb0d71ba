// The jobs of the present and of a past moment, as the server filters, sorts and counts them. Of each only what its row shows is asked for.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type Job, api, unwrap } from "../../api/client";
import { POLL_MS } from "../../api/queries";
import type { components } from "../../api/schema";
import { commandOf, word } from "../../lib/commands";
import { gather } from "../../lib/gather";

const FIELDS = [
  ...(["id", "name", "state", "state_cause", "state_since", "owner", "project", "submitted_at", "ended_at"] as const),
  ...(["gpus", "gpus_min", "gpus_max", "layout", "execution", "global_batch_sequences", "global_batch_tokens"] as const),
  ...(["goodput_tokens_per_second", "efficiency", "progress_fraction", "eta_seconds", "waiting", "last_change"] as const),
] as const;

export type Row = Pick<Job, (typeof FIELDS)[number]>;

interface RowList {
  items: Row[];
  next_cursor?: string | null;
  totals?: components["schemas"]["JobTotals"] | null;
}
export type PastJob = components["schemas"]["PastJob"];

export interface JobsFilter {
  state?: string | undefined;
  project?: string | undefined;
  user?: string | undefined;
  label?: string | undefined;
  q?: string | undefined;
}

/** The stream patches its rows, and has it asked anew when jobs come, go or change state. */
export function useJobs(filter: JobsFilter, sort: string | undefined, wanted: number) {
  return useQuery({
    queryKey: ["jobs", "list", "page", filter, sort, wanted],
    queryFn: () => {
      const ask = (page: { cursor: string | undefined; limit: number }) => {
        // Counted once: the first page's totals are all pages'.
        const query = { ...filter, sort, fields: FIELDS.join(","), totals: page.cursor === undefined, ...page };
        return unwrap(api.GET("/api/v1/jobs", { params: { query } })) as Promise<RowList>;
      };
      return gather(ask, wanted, (row) => row.id);
    },
    refetchInterval: 3 * POLL_MS,
    placeholderData: keepPreviousData,
  });
}

/** The past knows neither labels nor orders, and counts nothing. */
export function usePastJobs(at: string, { state, project, user, q }: JobsFilter, wanted: number) {
  return useQuery({
    // Not outdated by what happens now.
    queryKey: ["past-jobs", at, { state, project, user, q }, wanted],
    queryFn: () => {
      const ask = (page: { cursor: string | undefined; limit: number }) => {
        const query = { at, state, project, user, q, ...page };
        return unwrap(api.GET("/api/v1/jobs", { params: { query } })) as Promise<components["schemas"]["PastJobList"]>;
      };
      return gather(ask, wanted, (row) => row.id);
    },
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
  });
}

/** The same from a terminal. Without a state `ps` leaves out what has ended, but for the past, which had none. */
export function psCommand(states: readonly string[], options: Record<string, string | undefined>): string {
  const named = states.map((state) => ` --state=${word(state)}`).join("");
  return commandOf(`headway ps${named || (options.at ? "" : " --all --limit=100")}`, options);
}
