// The first page with live data, as a person sees it: light and dark, wide and narrow, and without barriers.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { after, before, test } from "node:test";
import { emulatedJob, launch, startCluster, until } from "./cluster.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = path.join(import.meta.dirname, "screenshots");
let cluster;
let browser;

before(async () => {
  mkdirSync(shots, { recursive: true });
  cluster = await startCluster();
  browser = await launch();
  await cluster.submit(emulatedJob("llama-large", { max: 8 }));
  await cluster.submit(emulatedJob("ablation", { min: 2, max: 4, priority: 75 }));
  await until("both jobs to train", async () => {
    const { items } = await cluster.get("/api/v1/jobs");
    return items.length === 2 && items.every((job) => job.state === "running" && job.goodput_tokens_per_second);
  });
});

after(async () => {
  await browser?.close();
  await cluster?.stop();
});

async function open(options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(`${cluster.url}/#token=${cluster.token}`);
  await page.getByTestId("jobs").getByText("llama-large").first().waitFor();
  return { page, complaints };
}

test("the page shows jobs, nodes, goodput and reasons from live data", async () => {
  const { page, complaints } = await open({ viewport: { width: 1440, height: 1000 } });
  await page.getByTestId("connection").getByText("live").waitFor();
  await page.getByTestId("goodput-chart").locator("canvas").waitFor();
  assert.equal(await page.getByTestId("nodes").locator(".node").count(), 2);
  await page.getByTestId("nodes").locator(".cell.held").first().waitFor();
  await page.getByTestId("events").getByText("job.submitted").first().waitFor();
  assert.ok(!page.url().includes("token"), "the token leaves the address bar");
  assert.deepEqual(complaints, []);
  await page.context().close();
});

test("the page keeps no token, and its cookie opens a second tab and an EventSource until it logs out", async () => {
  const { page, complaints } = await open({ viewport: { width: 1440, height: 1000 } });
  const kept = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie]));
  assert.ok(!kept.includes(cluster.token) && !kept.includes("hws_"), kept);
  const tab = await page.context().newPage();
  await tab.goto(cluster.url);
  await tab.getByTestId("jobs").getByText("llama-large").first().waitFor();
  const opened = await tab.evaluate(
    () => new Promise((resolve) => {
      const source = new EventSource("/api/v1/stream");
      source.onopen = () => resolve("open");
      source.onerror = () => resolve("refused");
    }),
  );
  assert.equal(opened, "open");
  assert.deepEqual(complaints, []);
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Access token").first().waitFor();
  await tab.getByRole("button", { name: "Log in again" }).waitFor({ timeout: 15_000 });
  await page.getByLabel("Access token").first().fill("wrong");
  await page.getByRole("button", { name: "Open the cluster" }).click();
  await page.getByText("the token is unknown, revoked or expired").waitFor();
  await page.getByLabel("Access token").first().fill(cluster.token);
  await page.getByRole("button", { name: "Open the cluster" }).click();
  await page.getByTestId("jobs").getByText("llama-large").first().waitFor();
  await page.context().close();
});

test("it follows what happens without a reload", async () => {
  const { page } = await open({ viewport: { width: 1440, height: 1000 } });
  await cluster.submit(emulatedJob("latecomer", { min: 8, max: 8 }));
  await page.getByTestId("jobs").getByText("latecomer").first().waitFor({ timeout: 10_000 });
  await page.context().close();
});

test("without a token it asks for one and shows nothing", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(cluster.url);
  await page.getByLabel("Access token").first().waitFor();
  assert.equal(await page.getByTestId("jobs").count(), 0);
  await context.close();
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1440, 768, 320]) {
    test(`it is legible and accessible, ${colorScheme}, ${width} px`, async () => {
      const { page } = await open({ viewport: { width, height: 1000 }, colorScheme });
      await page.getByTestId("goodput-chart").locator("canvas").waitFor();
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(overflow <= 0, `the page is ${overflow} px wider than the window`);
      await page.screenshot({ path: path.join(shots, `overview-${colorScheme}-${width}.png`), fullPage: true });
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa"] }));
      const serious = violations.filter((violation) => ["serious", "critical"].includes(violation.impact));
      assert.deepEqual(
        serious.map((violation) => `${violation.id}: ${violation.nodes[0].html} ${violation.nodes[0].failureSummary}`),
        [],
      );
      await page.context().close();
    });
  }
}
