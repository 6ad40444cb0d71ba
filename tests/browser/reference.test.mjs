// The REST API's reference, drawn by the binary's own page from its own document, with nobody else to ask.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { after, before, test } from "node:test";
import { launch, startCluster } from "./cluster.mjs";
import { newWindow, shots } from "./window.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let cluster;
let browser;

before(async () => {
  cluster = await startCluster();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await cluster?.stop();
});

for (const [colorScheme, width] of [["light", 1440], ["dark", 390]]) {
  test(`the reference draws every path of the document, ${colorScheme}, ${width} px`, async () => {
    const { page, complaints, close } = await newWindow(browser, { viewport: { width, height: 1000 }, colorScheme });
    page.on("request", (request) => {
      if (!request.url().startsWith(cluster.url) && !request.url().startsWith("data:")) complaints.push(request.url());
    });
    await page.goto(`${cluster.url}/docs`);
    await page.locator("main h2").first().waitFor();
    const document = await cluster.get("/api/v1/openapi.json");
    const drawn = await page.locator("main").textContent();
    assert.deepEqual(Object.keys(document.paths).filter((route) => !drawn.includes(route)), []);
    // A path may be the beginning of another, so each operation has to be there as well.
    const operations = Object.values(document.paths).flatMap((path) => Object.values(path).flatMap(({ operationId }) => operationId ?? []));
    const missing = await page.evaluate((ids) => ids.filter((id) => !window.document.getElementById(`operation/${id}`)), operations);
    assert.ok(operations.length > 100, `${operations.length} operations`);
    assert.deepEqual(missing, []);
    const overflow = await page.evaluate(() => window.document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `the page is ${overflow} px wider than the window`);
    await page.screenshot({ path: path.join(shots, `reference-${colorScheme}-${width}.png`) });
    assert.deepEqual(complaints, []);
    // The whole page has 39,000 elements, of few kinds: the first of them, and what submits a job, stand for all.
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => {
      const first = ["header.reference", ".menu-content", "[id='tag/jobs']", "[id='operation/list_jobs']", "[id='operation/submit']"];
      return window.axe.run({ include: first.map((one) => [one]) }, { runOnly: ["wcag2a", "wcag2aa"] });
    });
    const serious = violations.filter((violation) => ["serious", "critical"].includes(violation.impact));
    assert.deepEqual(
      serious.map((violation) => `${violation.id}: ${violation.nodes[0].html} ${violation.nodes[0].failureSummary}`),
      [],
    );
    await close();
  });
}
