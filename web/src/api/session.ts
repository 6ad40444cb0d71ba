// Logging in: the page exchanges an access token for a cookie that no script can read, and forgets the token. A link from
// `headway up` carries one in the fragment, which no server sees. Where the server has an identity provider, people log in there and no token is needed.

import { type Problem, api, unwrap } from "./client";
import { tokenIn } from "../lib/fragment";
import { useWhoami } from "./queries";

/** A request that is not answered for so long is given up, and made again. */
const DEAD_MS = 15_000;
const AGAIN_MS = 1_000;

/** Whether the browser is logged in, with the token of the address bar if there is one. A server that does not answer is asked until it does. */
export async function enter(): Promise<boolean> {
  const token = tokenIn(location.hash);
  if (token) history.replaceState(null, "", location.pathname + location.search);
  for (;;) {
    const loggedIn = await (token ? openSession(token) : hasSession()).catch(() => undefined);
    if (loggedIn !== undefined) return loggedIn;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

async function hasSession(): Promise<boolean | undefined> {
  return accepts(await api.GET("/api/v1/auth/whoami", { signal: AbortSignal.timeout(DEAD_MS) }));
}

async function openSession(token: string): Promise<boolean | undefined> {
  const headers = { Authorization: `Bearer ${token}` };
  return accepts(await api.POST("/api/v1/auth/sessions", { headers, signal: AbortSignal.timeout(DEAD_MS) }));
}

/** `undefined`: the server cannot tell, as while its database is away. A standby takes no logins: it refuses. */
function accepts({ response, error }: { response: Response; error?: unknown }): boolean | undefined {
  const standby = (error as Partial<Problem> | undefined)?.code === "not_leading";
  return response.status >= 500 && !standby ? undefined : response.ok;
}

/** The host of the identity provider through which people log in, where the server has one. */
export async function loginProvider(): Promise<string | undefined> {
  const { data } = await api.GET("/api/v1/auth/oidc");
  if (!data?.enabled || !data.issuer) return undefined;
  return new URL(data.issuer).host;
}

/** Where a login through the provider begins; it ends on the page that is open now. */
export function loginUrl(at: Pick<Location, "pathname" | "search">): string {
  return `/api/v1/auth/oidc/login?return=${encodeURIComponent(at.pathname + at.search)}`;
}

/** Rejects with an `ApiError` where the token opens nothing. */
export async function logIn(token: string): Promise<void> {
  await unwrap(api.POST("/api/v1/auth/sessions", { headers: { Authorization: `Bearer ${token}` } }));
}

/** A session that is over already is as good as ended. */
export async function logOut(): Promise<void> {
  await api.DELETE("/api/v1/auth/sessions/current").catch(() => undefined);
}

/** What one may do, the least first. */
const ROLES = ["viewer", "user", "operator", "admin"] as const;
export type Role = (typeof ROLES)[number];

/** Whether who is logged in may do what is for this role. What projects grant beyond it only the server knows, and says. */
export function useCan(role: Role): boolean {
  const { data } = useWhoami();
  return data !== undefined && ROLES.indexOf(data.scope as Role) >= ROLES.indexOf(role);
}
