// The typed client, generated from the OpenAPI document.

import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
export type Job = Schemas["Job"];
export type JobList = Schemas["JobList"];
export type Overview = Schemas["Overview"];
export type PastOverview = Schemas["PastOverview"];
export type AttentionItem = Schemas["AttentionItem"];
export type NodeList = Schemas["NodeList"];
export type Node = Schemas["Node"];
export type Plan = Schemas["Plan"];
export type EventRecord = Schemas["EventRecord"];
export type Explanation = Schemas["Explanation"];
export type QueuedJob = Schemas["QueuedJob"];
export type SeriesPoint = Schemas["SeriesPoint"];
export type Problem = Schemas["Problem"];

/** What the server said was wrong, or that it did not answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    super(problem.detail ?? problem.title ?? `the server answered ${status}`);
  }
}

/** The cookie that the browser brings by itself counts for changes only beside this header, which no page of another origin can send. */
const madeByPage: Middleware = {
  onRequest({ request }) {
    if (request.method !== "GET") request.headers.set("X-Headway-Page", "1");
    return request;
  },
};

/** Browsers say each in words of their own that nobody answered. */
const inPlainWords: Middleware = {
  onError({ error }) {
    if (error instanceof TypeError) return new Error("the server cannot be reached", { cause: error });
    if (error instanceof DOMException && error.name === "TimeoutError") return new Error("the server does not answer", { cause: error });
    return undefined;
  },
};

export const api = createClient<paths>({ baseUrl: "" });
api.use(madeByPage, inPlainWords);

/** The data of an answer, or an `ApiError`. */
export async function unwrap<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await answer;
  if (!response.ok || data === undefined) throw new ApiError(response.status, (error ?? {}) as Partial<Problem>);
  return data;
}
