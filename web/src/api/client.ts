// The typed client, generated from the OpenAPI document.

import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema";
import { token } from "./token";

export type Job = components["schemas"]["Job"];
export type Node = components["schemas"]["Node"];
export type Plan = components["schemas"]["Plan"];
export type EventRecord = components["schemas"]["EventRecord"];
export type SeriesPoint = components["schemas"]["SeriesPoint"];
export type Problem = components["schemas"]["Problem"];

/** What the server said was wrong, or that it did not answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    super(problem.detail ?? problem.title ?? `the server answered ${status}`);
  }
}

const authorise: Middleware = {
  onRequest({ request }) {
    const secret = token();
    if (secret) request.headers.set("Authorization", `Bearer ${secret}`);
    return request;
  },
};

export const api = createClient<paths>({ baseUrl: "" });
api.use(authorise);

/** The data of an answer, or an `ApiError`. */
export async function unwrap<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await answer;
  if (!response.ok || data === undefined) throw new ApiError(response.status, (error ?? {}) as Partial<Problem>);
  return data;
}
