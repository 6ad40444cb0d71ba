// A day at work: `headway up --demo`, every page with something to tell. With HEADWAY_PICTURES=DIRECTORY the README's pictures are taken after some
// hours of the cluster's time (some minutes of ours).

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { launch, startCluster, until } from "./cluster.mjs";
import { open } from "./window.mjs";

const PICTURES = process.env.HEADWAY_PICTURES;
/** How long a cluster works before its picture is taken. */
const HOURS = 6;
let cluster;
let browser;

before(async () => {
  cluster = await startCluster(["--demo"]);
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await cluster?.stop();
});

async function see(page, url, id) {
  await page.goto(cluster.url + url);
  await page.getByTestId(`page-${id}`).waitFor();
  await page.waitForFunction(() => document.querySelectorAll("[data-loading]").length === 0);
}

const newest = async (state) => (await cluster.get(`/api/v1/jobs?state=${state}&limit=1`)).items[0];

test("people submit, plans are carried out, and every page has something to tell", async () => {
  const overview = await until("the day to be under way", async () => {
    const now = await cluster.get("/api/v1/overview");
    return now.jobs_by_state.running >= 20 && now.jobs_by_state.queued >= 1 && now.plan_id ? now : undefined;
  }, 120_000);
  assert.equal(overview.nodes_total, 64);
  assert.equal(overview.clock_speed, 60);
  const owners = new Set((await cluster.get("/api/v1/jobs?limit=200")).items.map((job) => job.owner));
  assert.ok(owners.size >= 6, `jobs of ${[...owners]}`);

  // The newest may have begun this second and have nothing to draw.
  const measured = async () => (await cluster.get("/api/v1/jobs?state=running&limit=50")).items.find((job) => job.step >= 5);
  const [running, waiting] = [await until("a job to be measured", measured, 60_000), await newest("queued")];
  const node = (await cluster.get("/api/v1/nodes")).items[0];
  /** Each page, and what is only there when it has something to tell. */
  const pages = [
    ["/", "overview", "[data-testid=page-overview] table tbody tr >> nth=3"],
    ["/queue", "queue", "[data-testid=page-queue] table tbody tr >> nth=0"],
    [`/queue?job=${waiting.id}`, "queue", "[data-testid=headline]"],
    ["/jobs", "jobs", "[data-testid=page-jobs] table tbody tr >> nth=10"],
    [`/jobs/${running.id}`, "job", "[data-testid=page-job] canvas >> nth=0"],
    ["/plan", "plan", "[data-testid=page-plan] table tbody tr >> nth=0"],
    ["/cluster", "cluster", "[data-testid=page-cluster] canvas, [data-testid=page-cluster] svg >> nth=0"],
    [`/nodes/${node.id}`, "node", "[data-testid=page-node] table tbody tr >> nth=0"],
    ["/goodput", "goodput", "[data-testid=page-goodput] canvas >> nth=0"],
    ["/timeline", "timeline", "text=running, in the job's colour"],
    ["/events", "events", "[data-testid=page-events] table tbody tr >> nth=10"],
    ["/reports", "reports", "[data-testid=page-reports] table tbody tr >> nth=0"],
    ["/settings", "settings", "[data-testid^=policy-] >> nth=0"],
  ];
  const { page, complaints, close } = await open(browser, cluster);
  for (const [url, id, told] of pages) {
    await see(page, url, id);
    await page.locator(told).first().waitFor({ timeout: 20_000 });
  }
  assert.deepEqual(complaints, []);
  await close();
});

test("the README's pictures", { skip: !PICTURES }, async () => {
  mkdirSync(PICTURES, { recursive: true });
  const began = Date.parse((await cluster.get("/api/v1/overview")).at);
  await until(`${HOURS} hours of the cluster to go by`, async () => {
    const { at } = await cluster.get("/api/v1/overview");
    return Date.parse(at) - began > HOURS * 3_600_000;
  }, 20 * 60_000);
  const take = async (colorScheme, name, url, id) => {
    const { page, close } = await open(browser, cluster, "/", { colorScheme });
    await see(page, url, id);
    // Charts draw once their sizes are known.
    await page.waitForFunction(() => document.fonts.status === "loaded");
    await page.screenshot({ path: path.join(PICTURES, `${name}.png`) });
    await close();
  };
  const waiting = await newest("queued");
  await take("light", "overview", "/?window=6h", "overview");
  await take("light", "explain", `/queue?job=${waiting.id}`, "queue");
  await take("dark", "cluster", "/cluster", "cluster");
});
