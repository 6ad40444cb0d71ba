// Every page, and which state of it stands in the URL. Pages come when they are asked for.

import { createRootRoute, createRoute, createRouter, lazyRouteComponent, retainSearchParams } from "@tanstack/react-router";
import * as v from "valibot";
import { Failed } from "./parts/Panel";
import { Shell } from "./shell/Shell";

/** What somebody typed into the URL is left out where it is wrong. Text that looks like a number comes as one. */
const text = v.fallback(v.optional(v.pipe(v.union([v.string(), v.number()]), v.transform(String), v.maxLength(300))), undefined);
const among = <const T extends readonly string[]>(words: T) => v.fallback(v.optional(v.picklist(words)), undefined);

const root = createRootRoute({
  // A past moment, which all pages then show; ISO 8601.
  validateSearch: v.object({ at: v.fallback(v.optional(v.pipe(v.string(), v.isoTimestamp())), undefined) }),
  search: { middlewares: [retainSearchParams(["at"])] },
  component: Shell,
  notFoundComponent: () => <p>There is no such page. The pages stand in the rail on the left.</p>,
  errorComponent: ({ error }) => <Failed error={error instanceof Error ? error : new Error(String(error))} />,
});

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  validateSearch: v.object({ window: among(["1h", "6h", "24h", "7d"]) }),
  component: lazyRouteComponent(() => import("./pages/overview/OverviewPage")),
});
const queue = createRoute({
  getParentRoute: () => root,
  path: "/queue",
  validateSearch: v.object({ project: text, user: text, code: text, type: text, q: text, job: text }),
  component: lazyRouteComponent(() => import("./pages/queue/QueuePage")),
});
const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: v.object({ state: text, project: text, user: text, label: text, q: text, sort: text }),
  component: lazyRouteComponent(() => import("./pages/jobs/JobsPage")),
});
const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$id",
  validateSearch: v.object({
    tab: among(["goodput", "allocations", "logs", "events", "config", "checkpoints"]),
    span: among(["1h", "24h", "all"]),
    rank: text,
    attempt: text,
    tail: text,
    line: text,
    event: text,
    q: text,
  }),
  component: lazyRouteComponent(() => import("./pages/job/JobPage")),
});
const plan = createRoute({
  getParentRoute: () => root,
  path: "/plan",
  // `exclude`: comma-separated ids of jobs whose moves are left out.
  validateSearch: v.object({ plan: text, exclude: text }),
  component: lazyRouteComponent(() => import("./pages/plan/PlanPage")),
});
const cluster = createRoute({
  getParentRoute: () => root,
  path: "/cluster",
  validateSearch: v.object({
    by: among(["job", "activity", "utilisation", "health"]),
    as: among(["map", "table"]),
    ...{ q: text, type: text, job: text, health: text, reservation: text, node: text, sort: text },
  }),
  component: lazyRouteComponent(() => import("./pages/cluster/ClusterPage")),
});
const reservations = createRoute({
  getParentRoute: () => root,
  path: "/reservations",
  // `reservation`: the name or id of the one that is open.
  validateSearch: v.object({ phase: among(["active", "upcoming"]), q: text, reservation: text, sort: text }),
  component: lazyRouteComponent(() => import("./pages/reservations/ReservationsPage")),
});
const node = createRoute({
  getParentRoute: () => root,
  path: "/nodes/$node",
  component: lazyRouteComponent(() => import("./pages/node/NodePage")),
});
const goodput = createRoute({
  getParentRoute: () => root,
  path: "/goodput",
  validateSearch: v.object({
    window: among(["1h", "6h", "24h", "7d"]),
    group: among(["cluster", "project", "job"]),
    over: among(["static_split", "first_come", "throughput_only"]),
  }),
  component: lazyRouteComponent(() => import("./pages/goodput/GoodputPage")),
});
const timeline = createRoute({
  getParentRoute: () => root,
  path: "/timeline",
  validateSearch: v.object({ group: among(["job", "node"]), from: text, to: text, project: text }),
  component: lazyRouteComponent(() => import("./pages/timeline/TimelinePage")),
});
const events = createRoute({
  getParentRoute: () => root,
  path: "/events",
  validateSearch: v.object({ tab: among(["events", "audit"]), result: among(["done", "refused"]), verb: text, actor: text, job: text, node: text, event: text }),
  component: lazyRouteComponent(() => import("./pages/events/EventsPage")),
});
const reports = createRoute({
  getParentRoute: () => root,
  path: "/reports",
  validateSearch: v.object({ tab: among(["usage", "fairness", "compare"]), window: among(["24h", "7d", "30d"]), by: text }),
  component: lazyRouteComponent(() => import("./pages/reports/ReportsPage")),
});
const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  validateSearch: v.object({ tab: among(["policy", "projects", "people", "tokens", "nodes"]), item: text }),
  component: lazyRouteComponent(() => import("./pages/settings/SettingsPage")),
});

const routeTree = root.addChildren([
  ...[overview, queue, jobs, job, plan, cluster],
  ...[reservations, node, goodput, timeline, events, reports, settings],
]);

export const router = createRouter({ routeTree, defaultPreload: "intent", scrollRestoration: true });

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
