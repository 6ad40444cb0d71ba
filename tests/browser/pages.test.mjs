// Every page as people see it: both themes, wide and narrow, without anything, with errors and with data that has grown old; axe finds nothing, every
// text can be read, and nothing makes the page scroll sideways.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { emulatedJob, launch, startCluster, until } from "./cluster.mjs";
import { lowContrasts } from "./contrast.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = path.join(import.meta.dirname, "screenshots");
const THEMES = ["light", "dark"];
/** With HEADWAY_BROWSER=all each page is seen in each theme at each width, and fails in both; else in half of that, in less than half of the time. */
const ALL = process.env.HEADWAY_BROWSER === "all";
const WIDTHS = { light: ALL ? [1440, 768, 390] : [1440, 390], dark: ALL ? [1440, 768, 390] : [1440, 768] };
let cluster;
let browser;
/** The pages, each with what shows that it is there. */
let pages;

before(async () => {
  mkdirSync(shots, { recursive: true });
  cluster = await startCluster();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await cluster?.stop();
});

/** A window that is logged in, and what it complained of. */
async function open(options) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  await page.goto(`${cluster.url}/#token=${cluster.token}`);
  await page.getByTestId("page-overview").waitFor();
  return { page, complaints, close: () => context.close() };
}

async function see(page, url, id) {
  await page.goto(cluster.url + url);
  await page.getByTestId(`page-${id}`).waitFor();
  // Until nothing is asked any more but what is asked again and again.
  await page.waitForFunction(() => document.querySelectorAll("[aria-label=loading]").length === 0);
}

/** What is wrong with the page as it stands. */
async function faults(page, what) {
  const found = await page.evaluate(lowContrasts);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (overflow > 0) found.push(`it is ${overflow} px wider than the window`);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] }),
  );
  for (const { id, nodes } of violations) {
    found.push(`${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 300)} (${node.any[0]?.message ?? node.failureSummary})`).join(", ")}`);
  }
  return found.map((one) => `${what}: ${one}`);
}

/** Pages that need neither a job nor more than the nodes of every cluster. */
const ALWAYS = [
  ["/", "overview"],
  ["/queue", "queue"],
  ["/jobs", "jobs"],
  ["/plan", "plan"],
  ["/cluster", "cluster"],
  ["/goodput", "goodput"],
  ["/timeline", "timeline"],
  ["/events", "events"],
  ["/reports", "reports"],
  ["/settings", "settings"],
];

describe("of a cluster without jobs", () => {
  for (const colorScheme of THEMES) {
    test(`each page says what is not there, ${colorScheme}`, async () => {
      const { page, complaints, close } = await open({ colorScheme });
      const found = [];
      for (const [url, id] of ALWAYS) {
        await see(page, url, id);
        found.push(...(await faults(page, `${id}, empty`)));
        await page.screenshot({ path: path.join(shots, `${id}-empty-${colorScheme}.png`), fullPage: true });
      }
      assert.deepEqual([...found, ...complaints], []);
      await close();
    });
  }
});

describe("of a cluster at work", () => {
  before(async () => {
    await cluster.submit(emulatedJob("llama-large", { max: 8 }));
    await cluster.submit(emulatedJob("ablation-of-the-learning-rate-with-a-name-that-fits-nowhere-b", { min: 2, max: 4, priority: 75 }));
    await cluster.submit({ ...emulatedJob("<script>alert(1)</script>", { min: 8, max: 8, priority: 10 }), name: "x-script-alert" });
    await until("jobs to train", async () => {
      const { items } = await cluster.get("/api/v1/jobs?state=running");
      return items.length >= 2 && items.every((job) => job.goodput_tokens_per_second);
    });
    const { items } = await cluster.get("/api/v1/jobs?state=running");
    const waiting = (await cluster.get("/api/v1/jobs?state=queued")).items[0];
    const node = (await cluster.get("/api/v1/nodes")).items[0];
    pages = [...ALWAYS, [`/jobs/${items[0].id}`, "job"], [`/nodes/${node.id}`, "node"]];
    if (waiting) pages.push([`/queue?job=${waiting.id}`, "queue"]);
  });

  for (const colorScheme of THEMES) {
    for (const width of WIDTHS[colorScheme]) {
      test(`each page can be read, ${colorScheme}, ${width} px`, async () => {
        const { page, complaints, close } = await open({ colorScheme, viewport: { width, height: 900 } });
        const found = [];
        for (const [url, id] of pages) {
          await see(page, url, id);
          found.push(...(await faults(page, url)));
          const name = url.includes("?job=") ? "explain" : id;
          await page.screenshot({ path: path.join(shots, `${name}-${colorScheme}-${width}.png`), fullPage: true });
        }
        assert.deepEqual([...found, ...complaints], []);
        await close();
      });
    }
    if (!ALL && colorScheme === "dark") continue;
    test(`each page says what failed, and keeps what it had, ${colorScheme}`, async () => {
      const { page, close } = await open({ colorScheme });
      const found = [];
      for (const [url, id] of pages) {
        await see(page, url, id);
        // The database goes away: the server says so, and the page goes on showing what it knew.
        const problem = { type: "about:blank", title: "unavailable", status: 503, code: "unavailable", detail: "the database is away", request_id: "r-1" };
        await page.route("**/api/v1/**", (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify(problem) }));
        await page.getByText("the database is away").first().waitFor({ timeout: 20_000 });
        found.push(...(await faults(page, `${url}, failing`)));
        await page.screenshot({ path: path.join(shots, `${id}-error-${colorScheme}.png`), fullPage: true });
        await page.unroute("**/api/v1/**");
      }
      assert.deepEqual(found, []);
      await close();
    });
  }
});
