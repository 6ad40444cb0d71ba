// What goes wrong with a real cluster is on the screen within five seconds, with what it costs and what can be done, and goes when it is over.

import assert from "node:assert/strict";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { emulatedJob, launch, startCluster, until } from "./cluster.mjs";
import { newWindow, open, shots } from "./window.mjs";

/** Twice what is wanted, for machines that do much else. */
const SOON_MS = 10_000;
const AGENTS = [/\0--name\0/];
/** The postmaster and its children; the scheduler has an address of Postgres among its arguments and is none of them. */
const DATABASE = [/^postgres:/, /^[^\0]*bin\/postgres\0/];
const POSTMASTER = [/^[^\0]*bin\/postgres\0-D/];
/** One whose database goes away, and one whose agents do: it takes half a minute until they are missed. */
let clusters;
let browser;

before(async () => {
  clusters = await Promise.all([startCluster(), startCluster()]);
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await Promise.all(clusters?.map((cluster) => cluster.stop()) ?? []);
});

/** Stops processes of a cluster. They go on when the test ends, however it ends: a database that stays away fails the tests that follow. */
function halt(t, cluster, programs) {
  t.after(() => cluster.signal("SIGCONT", ...programs));
  assert.ok(cluster.signal("SIGSTOP", ...programs) > 0, "there is something to stop");
}

/** A job that trains on all GPUs. */
async function trains(cluster) {
  const job = (await cluster.submit(emulatedJob("llama-large", { max: 8 }))).jobs[0];
  await until("a job to train", async () => (await cluster.get(`/api/v1/jobs/${job.id}`)).goodput_tokens_per_second);
}

/** Waits for a part of the page, and says how long that took; `since`: the moment from which it counts. */
async function soon(what, part, since) {
  await part.waitFor({ timeout: SOON_MS });
  const took = Date.now() - since;
  console.log(`${what} was on the screen after ${took} ms`);
  assert.ok(took < SOON_MS, `${what} after ${took} ms`);
  return part.innerText();
}

describe("side by side", { concurrency: true }, () => {
  describe("planning and the database", { concurrency: false }, () => {
    let cluster;
    before(async () => {
      cluster = clusters[0];
      await trains(cluster);
    });

    test("a round that outlasts its limit is told with the plan's age and what is lost", async () => {
      const { page, close } = await open(browser, cluster, "/jobs");
      const before = Date.now();
      // Rounds of a small cluster take milliseconds: the reply is the server's, but for what it says of one that takes too long.
      await page.route("**/api/v1/overview", async (route) => {
        const answer = await route.fetch();
        const overview = await answer.json();
        const late = {
          ...{ kind: "round_late", severity: "critical", since: new Date(before - 75_000).toISOString(), gpu_hours: 0.17 },
          headline: "A round has been under way for 75 s",
          next_step: "It is given up by itself; if that goes on, fewer sizes per job make rounds shorter",
        };
        overview.attention.unshift(late);
        overview.attention_by_kind.round_late = 1;
        overview.gpus_by_activity = { training: overview.gpus_healthy - 6, idle_waiting: 6 };
        await route.fulfill({ response: answer, json: overview });
      });
      const said = await soon("the late round", page.getByTestId("planning-stands"), before);
      assert.match(said, /A round has been under way for 75 s\. The newest plan is .+ old\. 6 of 8 healthy GPUs are idle: 0\.1 GPU-hours are lost every minute\./);
      await page.screenshot({ path: path.join(shots, "incident-late-round.png") });
      await page.unroute("**/api/v1/overview");
      await page.getByTestId("planning-stands").waitFor({ state: "detached" });
      await close();
    });

    test("a page that has had no answer yet says so", async () => {
      const { page, close } = await newWindow(browser);
      // Never answered, and never refused.
      await page.route("**/api/v1/overview", () => undefined);
      await page.goto(`${cluster.url}/jobs#token=${cluster.token}`);
      await page.getByText("llama-large").first().waitFor();
      const said = await soon("the missing overview", page.getByTestId("stale"), Date.now());
      assert.match(said, /^The server, or the database behind it, does not answer\. It is asked again/);
      await page.unrouteAll({ behavior: "ignoreErrors" });
      await close();
    });

    test("a database that does not answer is told with the age of what is shown, and all comes back by itself", async (t) => {
      const { page, close } = await open(browser, cluster, "/jobs");
      await page.getByText("llama-large").first().waitFor();
      const before = Date.now();
      halt(t, cluster, DATABASE);
      assert.equal((await fetch(`${cluster.url}/healthz`)).status, 200, "the scheduler itself is there");
      const said = await soon("the silent database", page.getByTestId("stale"), before);
      assert.match(said, /^The server, or the database behind it, does not answer\. What is shown is of .+, \d+s old; actions may be refused/);
      assert.equal(await page.getByTestId("connection").getByText("live").count(), 0, "what is stale is not called live");
      assert.ok(await page.getByText("llama-large").first().isVisible(), "what was there stays");
      await page.screenshot({ path: path.join(shots, "incident-database.png") });
      // A page that is opened meanwhile says so too, and opens by itself later.
      const late = await newWindow(browser);
      await late.page.goto(`${cluster.url}/jobs#token=${cluster.token}`);
      await soon("that nothing answers a page that is opened", late.page.getByTestId("no-answer"), Date.now());
      await late.page.screenshot({ path: path.join(shots, "incident-no-answer.png") });
      cluster.signal("SIGCONT", ...DATABASE);
      await late.page.getByTestId("connection").getByText("live").waitFor();
      await late.page.getByText("llama-large").first().waitFor();
      await late.close();
      await page.getByTestId("stale").waitFor({ state: "detached" });
      await page.getByTestId("connection").getByText("live").waitFor();
      await close();
    });

    test("a database that dies is started again, and nobody has to do anything", async () => {
      const { page, close } = await open(browser, cluster, "/jobs");
      assert.equal(cluster.signal("SIGKILL", ...POSTMASTER), 1, "the database is there, and dies");
      // It may be there again before anybody has missed it.
      await cluster.submit(emulatedJob("after-the-crash", { min: 8, max: 8, priority: 10 })).catch(() => undefined);
      const late = await until("jobs to be taken again", () => cluster.submit(emulatedJob("latecomer", { min: 8, max: 8, priority: 10 })).catch(() => undefined));
      await page.getByText(late.jobs[0].name).first().waitFor();
      await page.getByTestId("stale").waitFor({ state: "detached" });
      await page.getByTestId("connection").getByText("live").waitFor();
      await close();
    });
  });

  test("nodes that fall silent are named, with what to do", async (t) => {
    const cluster = clusters[1];
    await trains(cluster);
    const { page, close } = await open(browser, cluster, "/events");
    halt(t, cluster, AGENTS);
    const silent = await until("the server to miss its nodes", async () => {
      const { attention } = await cluster.get("/api/v1/overview");
      const found = attention.filter((item) => item.kind === "node_unreachable");
      return found.length === 2 && found;
    });
    const said = await soon("the silence", page.getByTestId("critical").getByText("2 in all"), Date.now());
    for (const { name } of silent) assert.ok(said.includes(name), said);
    assert.match(said, /out of contact for .+\. Bring its agent back; if nothing runs there any more: headway node lost /);
    await page.screenshot({ path: path.join(shots, "incident-nodes.png") });
    // Each name leads to its node.
    await page.getByTestId("critical").getByRole("link", { name: silent[0].name }).click();
    await page.getByTestId("page-node").waitFor();
    cluster.signal("SIGCONT", ...AGENTS);
    await page.getByTestId("critical").waitFor({ state: "detached" });
    await close();
  });
});
