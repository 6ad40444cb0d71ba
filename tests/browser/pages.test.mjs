// Every page as people see it: both themes, wide and narrow, without anything, with errors and with data that has grown old; axe finds nothing, every
// text can be read, and nothing makes the page scroll sideways.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { emulatedJob, launch, startCluster, until } from "./cluster.mjs";
import { lowContrasts } from "./contrast.mjs";
import { open, shots } from "./window.mjs";
import { wired } from "./wire.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const THEMES = ["light", "dark"];
/** With HEADWAY_BROWSER=all each page is seen in each theme at each width, and fails and grows old in both; else in half of that, in less than half of the time. */
const ALL = process.env.HEADWAY_BROWSER === "all";
const WIDTHS = { light: ALL ? [1440, 768, 390] : [1440, 390], dark: ALL ? [1440, 768, 390] : [1440, 768] };
/** Windows that go through the pages together, where they wait most of the time for something to fail. */
const SIDE_BY_SIDE = 3;
let cluster;
let browser;
/** The pages, each with what shows that it is there. */
let pages;

before(async () => {
  cluster = await startCluster();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await cluster?.stop();
});

/** What `look` finds, and what the windows complain of, on all the pages. */
async function throughAll(these, options, look, windows = 1) {
  const left = [...these];
  const found = [];
  const go = async () => {
    const wire = await wired(cluster);
    try {
      const window = await open(browser, wire, "/", options);
      for (let next = left.shift(); next; next = left.shift()) found.push(...(await look({ ...window, wire }, ...next)));
      await window.close();
      return window.complaints;
    } finally {
      // A wire that is left open keeps the tests from ending.
      await wire.close();
    }
  };
  const complaints = await Promise.all(Array.from({ length: windows }, go));
  return { found, complaints: complaints.flat() };
}

async function see({ page, wire }, url, id) {
  await page.goto(wire.url + url);
  await page.getByTestId(`page-${id}`).waitFor();
  // Until nothing is asked any more but what is asked again and again. The top bar has no skeleton that would tell.
  await page.locator(".bar-facts").waitFor({ state: "attached" });
  await page.waitForFunction(() => document.querySelectorAll("[data-loading]").length === 0);
}

/** Has a page ask anew at once, as it does when somebody comes back to it. */
function comeBack(page) {
  return page.evaluate(() => document.dispatchEvent(new Event("visibilitychange", { bubbles: true })));
}

/** How much there is to read. */
function contents(page) {
  return page.locator("#page :is(h2, h3, th, td, dd, li, svg, canvas)").count();
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

/** Rows come and go between two looks at a living cluster; a page that blanks loses most. */
const KEPT = 0.9;

/** What the page no longer shows of the things that it had. */
async function blanks(page, before, what) {
  const after = await contents(page);
  const found = after < before * KEPT ? [`${what}: of ${before} things to read ${after} are left`] : [];
  return (await page.locator("[data-loading]").count()) > 0 ? [...found, `${what}: something blanks`] : found;
}

/** Pages of which every part is made of jobs, and which say that there are none. */
const SAY_THAT_NOTHING_IS_THERE = ["queue", "jobs", "reservations", "goodput", "timeline", "reports"];

/** Of a picture. */
function nameOf(url, id) {
  const [, part] = /\?(job|reservation|as)=/.exec(url) ?? [];
  return { job: "explain", reservation: "reservation", as: "cluster-table" }[part] ?? id;
}

/** Pages that need neither a job nor more than the nodes of every cluster. */
const ALWAYS = [
  ["/", "overview"],
  ["/queue", "queue"],
  ["/jobs", "jobs"],
  ["/plan", "plan"],
  ["/cluster", "cluster"],
  ["/reservations", "reservations"],
  ["/goodput", "goodput"],
  ["/timeline", "timeline"],
  ["/events", "events"],
  ["/reports", "reports"],
  ["/settings", "settings"],
];

describe("of a cluster without jobs", () => {
  for (const colorScheme of THEMES) {
    test(`each page says what is not there, ${colorScheme}`, async () => {
      const { found, complaints } = await throughAll(ALWAYS, { colorScheme }, async (window, url, id) => {
        await see(window, url, id);
        await window.page.screenshot({ path: path.join(shots, `${id}-empty-${colorScheme}.png`), fullPage: true });
        const silent = SAY_THAT_NOTHING_IS_THERE.includes(id) && (await window.page.locator("#page .empty").count()) === 0;
        return [...(await faults(window.page, `${id}, empty`)), ...(silent ? [`${id}, empty: it does not say that nothing is there`] : [])];
      });
      assert.deepEqual([...found, ...complaints], []);
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
    // Far ahead, so that it closes no node.
    const from = new Date(Date.now() + 10 * 86_400_000).toISOString();
    await cluster.post("/api/v1/reservations", { name: "conference-demo", nodes: [node.name], from, duration_seconds: 7_200, users: ["ada"] });
    pages = [...ALWAYS, ["/cluster?as=table", "cluster"], [`/jobs/${items[0].id}`, "job"], [`/nodes/${node.id}`, "node"], ["/reservations?reservation=conference-demo", "reservations"]];
    if (waiting) pages.push([`/queue?job=${waiting.id}`, "queue"]);
  });

  for (const colorScheme of THEMES) {
    for (const width of WIDTHS[colorScheme]) {
      test(`each page can be read, ${colorScheme}, ${width} px`, async () => {
        const { found, complaints } = await throughAll(pages, { colorScheme, viewport: { width, height: 900 } }, async (window, url, id) => {
          await see(window, url, id);
          await window.page.screenshot({ path: path.join(shots, `${nameOf(url, id)}-${colorScheme}-${width}.png`), fullPage: true });
          return faults(window.page, url);
        });
        assert.deepEqual([...found, ...complaints], []);
      });
    }
    if (ALL || colorScheme === "light") {
      test(`each page says what failed, and keeps what it had, ${colorScheme}`, async () => {
        const problem = { type: "about:blank", title: "unavailable", status: 503, code: "unavailable", detail: "the database is away", request_id: "r-1" };
        const { found } = await throughAll(pages, { colorScheme }, async (window, url, id) => {
          const { page } = window;
          await see(window, url, id);
          const before = await contents(page);
          // The database goes away: the server says so, and the page goes on showing what it knew.
          await page.route("**/api/v1/**", (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify(problem) }));
          await comeBack(page);
          await page.getByTestId("stale").getByText("the database is away").waitFor();
          await page.screenshot({ path: path.join(shots, `${nameOf(url, id)}-error-${colorScheme}.png`), fullPage: true });
          const wrong = [...(await faults(page, `${url}, failing`)), ...(await blanks(page, before, `${url}, failing`))];
          await page.unroute("**/api/v1/**");
          return wrong;
        }, SIDE_BY_SIDE);
        assert.deepEqual(found, []);
      });
    }
    if (ALL || colorScheme === "dark") {
      test(`each page says how old it is while nothing answers, can still be read, and comes back, ${colorScheme}`, async () => {
        const { found } = await throughAll(pages, { colorScheme }, async (window, url, id) => {
          const { page, wire } = window;
          await see(window, url, id);
          const before = await contents(page);
          wire.cut();
          await page.getByTestId("connection").getByText("reconnecting").waitFor();
          await comeBack(page);
          await page.getByTestId("stale").getByText(/cannot be reached.+ old/).waitFor();
          // Each part of the page that was asked for says its age.
          await page.waitForFunction(() => [...document.querySelectorAll("[data-dated] > header")].every((header) => / old$/.test(header.innerText)));
          await page.screenshot({ path: path.join(shots, `${nameOf(url, id)}-stale-${colorScheme}.png`), fullPage: true });
          const wrong = [...(await faults(page, `${url}, stale`)), ...(await blanks(page, before, `${url}, stale`))];
          wire.mend();
          await comeBack(page);
          await page.getByTestId("stale").waitFor({ state: "detached" });
          await page.getByTestId("connection").getByText("live").waitFor();
          return wrong;
        }, SIDE_BY_SIDE);
        assert.deepEqual(found, []);
      });
    }
  }
});
