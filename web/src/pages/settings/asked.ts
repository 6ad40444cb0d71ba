// What settings ask and how they change things. Some changes have no dry run: these are told in words before they are made.

import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useCallback, useRef } from "react";
import { ApiError, type Problem, api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";
import type { Doing } from "../../parts/Act";

type Schemas = components["schemas"];
export type Policy = Schemas["Policy"];
export type Project = Schemas["Project"];
export type User = Schemas["User"];
export type Token = Schemas["Token"];
export type Foreseen = Schemas["Foreseen"];

export const SETTINGS_SECONDS = 15;
const EVERY_MS = SETTINGS_SECONDS * 1_000;
/** So long after the last key what is typed is tried. */
const PAUSE_MS = 300;

/** An answer without a body is one, too. */
export async function done(answer: Promise<{ error?: unknown; response: Response }>): Promise<null> {
  const { error, response } = await answer;
  if (!response.ok) throw new ApiError(response.status, (error ?? {}) as Partial<Problem>);
  return null;
}

/** How a change is asked for, in the query of what is put, changed or deleted. */
export function asked({ dryRun, reason }: Doing): { dry_run: boolean; reason?: string } {
  return { dry_run: dryRun, ...(reason ? { reason } : {}) };
}

/** The same where there is no dry run. */
export function why({ reason }: Doing): { reason?: string } {
  return reason ? { reason } : {};
}

/** A request of what a form holds, which is tried anew when that has changed and nobody types; what is sent is always what the form holds. */
export function useRequest<Body, Answer>(body: Body, send: (body: Body, doing: Doing) => Promise<Answer>): (doing: Doing) => Promise<Answer> {
  const latest = useRef({ body, send });
  latest.current = { body, send };
  const [rested] = useDebouncedValue(JSON.stringify(body), PAUSE_MS);
  return useCallback((doing: Doing) => latest.current.send(latest.current.body, doing), [rested]);
}

export function usePolicy() {
  return useQuery({
    queryKey: ["policy"],
    queryFn: async () => {
      const { data, error, response } = await api.GET("/api/v1/policy");
      if (!data) throw new ApiError(response.status, (error ?? {}) as Partial<Problem>);
      return { policy: data, etag: response.headers.get("ETag") ?? "" };
    },
    refetchInterval: EVERY_MS,
  });
}

export function useProjects() {
  return useQuery({ queryKey: ["projects"], queryFn: () => unwrap(api.GET("/api/v1/projects")), refetchInterval: EVERY_MS });
}

export function useMembers(project: string) {
  return useQuery({
    queryKey: ["members", project],
    queryFn: () => unwrap(api.GET("/api/v1/projects/{project}/members", { params: { path: { project } } })),
    refetchInterval: EVERY_MS,
  });
}

export function useUsers() {
  return useQuery({ queryKey: ["users"], queryFn: () => unwrap(api.GET("/api/v1/users")), refetchInterval: EVERY_MS });
}

export function useTokens() {
  return useQuery({ queryKey: ["tokens"], queryFn: () => unwrap(api.GET("/api/v1/auth/tokens")), refetchInterval: EVERY_MS });
}

export function useSessions() {
  return useQuery({ queryKey: ["sessions"], queryFn: () => unwrap(api.GET("/api/v1/auth/sessions")), refetchInterval: EVERY_MS });
}

export function useJoinTokens() {
  return useQuery({ queryKey: ["join-tokens"], queryFn: () => unwrap(api.GET("/api/v1/join-tokens")), refetchInterval: EVERY_MS });
}

export function useCertificates() {
  return useQuery({ queryKey: ["node-certificates"], queryFn: () => unwrap(api.GET("/api/v1/node-certificates")), refetchInterval: EVERY_MS });
}

export function useAuthorities() {
  return useQuery({ queryKey: ["node-authorities"], queryFn: () => unwrap(api.GET("/api/v1/node-authorities")), refetchInterval: EVERY_MS });
}
