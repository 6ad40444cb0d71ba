// What the audit tab asks: its lines, one of them, where its chain ends, and whether the chain holds.

import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";

type Schemas = components["schemas"];
export type AuditLine = Schemas["AuditLine"];
export type AuditVerification = Schemas["AuditVerification"];

const PAGE = 100;
export const AUDIT_SECONDS = 15;

export interface AuditFilter {
  actor?: string | undefined;
  action?: string | undefined;
  subject?: string | undefined;
  result?: string | undefined;
  until?: string | undefined;
}

export function useAudit(filter: AuditFilter) {
  return useInfiniteQuery({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam }) => {
      const query = { ...filter, limit: PAGE, ...(pageParam === undefined ? {} : { cursor: pageParam }) };
      return unwrap(api.GET("/api/v1/audit", { params: { query } }));
    },
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (last) => (last.next_cursor ? Number(last.next_cursor) : undefined),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    placeholderData: keepPreviousData,
  });
}

/** The newest line that the filter admits: what tells that there is more than what is shown. */
export function useNewestLine(filter: AuditFilter, enabled: boolean) {
  return useQuery({
    queryKey: ["audit-newest", filter],
    queryFn: async () => (await unwrap(api.GET("/api/v1/audit", { params: { query: { ...filter, limit: 1 } } }))).items[0]?.id ?? 0,
    refetchInterval: AUDIT_SECONDS * 1_000,
    enabled,
  });
}

/** One line by its number, wherever in the list it stands; null: there is none. */
export function useAuditLine(id: number) {
  return useQuery({
    queryKey: ["audit-line", id],
    queryFn: async (): Promise<AuditLine | null> => {
      const query = { cursor: id + 1, limit: 1 };
      const [line] = (await unwrap(api.GET("/api/v1/audit", { params: { query } }))).items;
      return line?.id === id ? line : null;
    },
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
  });
}

export function useAuditHead() {
  return useQuery({
    queryKey: ["audit-head"],
    queryFn: () => unwrap(api.GET("/api/v1/audit/head")),
    refetchInterval: AUDIT_SECONDS * 1_000,
  });
}

/** Verifies the chain page by page, and says after each how many lines hold so far. */
export async function verify(head: string | undefined, onLines: (lines: number) => void, signal: AbortSignal): Promise<AuditVerification> {
  let lines = 0;
  let cursor: number | undefined;
  for (;;) {
    // The anchor is looked for once, with the first page.
    const query = cursor === undefined ? (head ? { head } : {}) : { cursor };
    const page = await unwrap(api.GET("/api/v1/audit/verify", { params: { query }, signal }));
    lines += page.lines;
    onLines(lines);
    if (!page.next_cursor) return { ...page, lines };
    cursor = Number(page.next_cursor);
  }
}

/** What has changed, by path: one row for each that either side names. */
export function changes(line: AuditLine): { path: string; before: string; after: string }[] {
  const [before, after] = [sides(line.before), sides(line.after)];
  const paths = [...new Set([...before.keys(), ...after.keys()])].sort();
  return paths.map((path) => ({ path, before: before.get(path) ?? "–", after: after.get(path) ?? "–" }));
}

function sides(of: object | null | undefined): Map<string, string> {
  return new Map(Object.entries(of ?? {}).map(([path, value]) => [path, typeof value === "string" ? value : JSON.stringify(value)]));
}
