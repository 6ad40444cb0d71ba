// What the pages cost a browser at the size of a large cluster: `node performance.mjs`, with HEADWAY_BINARY naming an optimised build. It starts 2,000
// emulated nodes of eight GPUs, submits 20,000 distinct jobs of which some 3,000 run, and measures in traces. HEADWAY_NODES, HEADWAY_JOBS and
// HEADWAY_MINUTES make it smaller.

import { writeFileSync } from "node:fs";
import { get } from "node:http";
import { loadavg } from "node:os";
import { launch, startCluster, until } from "./cluster.mjs";
import { open } from "./window.mjs";
import { wired } from "./wire.mjs";

const NODES = Number(process.env.HEADWAY_NODES ?? 2_000);
const JOBS = Number(process.env.HEADWAY_JOBS ?? 20_000);
const MINUTES = Number(process.env.HEADWAY_MINUTES ?? 10);
/** Six times the events of a cluster whose time runs as ours. */
const SPEED = 6;
const BATCH = 100;
/** What the browser does for scripts, in the words of its traces. */
const SCRIPTING = new Set(["FunctionCall", "EvaluateScript", "v8.compile", "RunMicrotasks", "TimerFire", "EventDispatch", "FireAnimationFrame", "MinorGC", "MajorGC", "V8.GCFinalizeMC"]);

/** Job number `n`: no two alike. Three in four run on a few GPUs of one node. */
function job(n) {
  const least = [1, 2, 2, 4, 4, 8, 8][n % 7];
  const layers = 8 + (n % 24);
  return {
    version: 1,
    name: `run-${n}-${["sft", "ablation", "pretrain", "sweep"][n % 4]}`,
    priority: 30 + (n % 40),
    resources: { gpus: n % 3 === 0 ? least : { min: least, max: least * 2 } },
    training: {
      model: { layers, hidden: 1024 + 128 * (n % 9), heads: 8, kv_heads: 8, ffn_hidden: 4096 + 64 * (n % 31), gated: true, vocab: 32_000, seq_len: 2048, tied: false },
      precision: "bf16",
      reference_batch: "256 sequences",
      batch: { min: "64 sequences", max: "1024 sequences" },
      target: `${2 + (n % 17)}B tokens`,
      layouts: { tp: [1, 2], pp: [1], micro_batch: 4 },
      reconfigure: { batch: "live", layout: "restart" },
      checkpoint: { every: "30m", grace: "5m" },
    },
    run: { command: "true" },
  };
}

/** Begins a trace of the page's main thread; the returned function ends it and gives its events in milliseconds. */
async function trace(browser) {
  const session = await browser.newBrowserCDPSession();
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["devtools.timeline", "v8", "disabled-by-default-v8.gc", "toplevel"] } });
  return async () => {
    const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
    await session.send("Tracing.end");
    await complete;
    await session.detach();
    return events;
  };
}

/** The thread that did most of the scripting: our page's, whatever else the browser shows. */
function mainThread(events) {
  const scripted = new Map();
  for (const { pid, tid, name, dur } of events) {
    if (name === "FunctionCall" && dur) scripted.set(`${pid} ${tid}`, (scripted.get(`${pid} ${tid}`) ?? 0) + dur);
  }
  const [most] = [...scripted].sort((one, other) => other[1] - one[1]);
  return events.filter(({ pid, tid }) => `${pid} ${tid}` === most?.[0]);
}

/** Outermost events of these names, in processor milliseconds: what lies within another of them is not counted twice. */
function outermost(events, is) {
  const spans = events.filter((event) => event.ph === "X" && event.dur && is(event.name)).sort((one, other) => one.ts - other.ts || other.dur - one.dur);
  const outer = [];
  for (const span of spans) if (outer.length === 0 || span.ts >= outer.at(-1).ts + outer.at(-1).dur) outer.push(span);
  return outer.map(({ tdur, dur }) => (tdur ?? dur) / 1_000);
}

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
const most = (numbers) => Math.max(0, ...numbers);
const isTask = (name) => name === "RunTask" || name === "ThreadControllerImpl::RunTask";

function figures(events, seconds) {
  const main = mainThread(events);
  const [tasks, scripts] = [outermost(main, isTask), outermost(main, (name) => SCRIPTING.has(name))];
  const frames = outermost(main, (name) => name === "FireAnimationFrame");
  return {
    main_thread_ms: Math.round(sum(tasks)),
    scripting_ms: Math.round(sum(scripts)),
    scripting_ms_per_second: seconds ? Number((sum(scripts) / seconds).toFixed(1)) : undefined,
    longest_task_ms: Math.round(most(tasks)),
    tasks_over_50_ms: tasks.filter((task) => task > 50).length,
    longest_frame_ms: Number(most(frames).toFixed(1)),
  };
}

async function traced(browser, seconds, act) {
  const end = await trace(browser);
  await act();
  return figures(await end(), seconds);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const ready = (page, id) => page.getByTestId(`page-${id}`).waitFor().then(() => page.waitForFunction(() => document.querySelectorAll("[data-loading]").length === 0));

async function submitAll(cluster) {
  for (let first = 0; first < JOBS; first += BATCH) {
    const jobs = Array.from({ length: Math.min(BATCH, JOBS - first) }, (_, at) => job(first + at));
    await submit(cluster, `batch-${first}`, { jobs });
  }
}

/** Once, however often a busy scheduler is asked. */
async function submit(cluster, key, body) {
  for (;;) {
    const answer = await fetch(`${cluster.url}/api/v1/jobs`, {
      method: "POST",
      headers: { Authorization: `Bearer ${cluster.token}`, "Content-Type": "application/json", "Idempotency-Key": key },
      body: JSON.stringify(body),
    });
    if (answer.ok) return;
    const problem = await answer.text();
    if (answer.status !== 503 && answer.status !== 429) throw new Error(`${answer.status} ${problem}`);
    result.refused_as_busy = (result.refused_as_busy ?? 0) + 1;
    await pause(1_000);
  }
}

/** Follows what a page follows, beside it; ends with the bytes that came, compressed as browsers have them. */
function follow(address) {
  const headers = { Authorization: `Bearer ${cluster.token}`, "Accept-Encoding": "gzip" };
  let bytes = 0;
  const asked = get(address, { headers }, (answer) => {
    answer.on("data", (chunk) => (bytes += chunk.length));
    answer.on("error", () => {});
  });
  return {
    end() {
      asked.destroy();
      return bytes;
    },
  };
}

const result = { binary: process.env.HEADWAY_BINARY, nodes: NODES, jobs: JOBS, load_before: loadavg() };
const cluster = await startCluster(["--emulate", `H100x8=${NODES}`, "--speed", String(SPEED), "--failures", "1"]);
const browser = await launch();
let wire;
try {
  await cluster.patch("/api/v1/policy", { user_quotas: { admin: { unfinished_jobs: 2 * JOBS, specification_bytes: 2e9 } } });
  await cluster.post("/api/v1/plans/pause", {});
  const began = Date.now();
  await submitAll(cluster);
  result.submitted_seconds = (Date.now() - began) / 1_000;
  await until("all nodes to be there", async () => (await cluster.get("/api/v1/overview")).nodes_available >= 0.99 * NODES, 600_000);
  await cluster.post("/api/v1/plans/resume", {});
  await until("the cluster to be full", async () => {
    const { gpus_busy, gpus_healthy, jobs_by_state } = await cluster.get("/api/v1/overview");
    result.at_work = { gpus_busy, gpus_healthy, jobs_by_state };
    return gpus_busy > 0.9 * gpus_healthy && jobs_by_state.running > 5 * (jobs_by_state.starting ?? 0);
  }, 900_000);

  wire = await wired(cluster);
  const { page, context } = await open(browser, wire);
  context.setDefaultTimeout(60_000);

  result.first_paint = {};
  for (const [url, id] of [["/", "overview"], ["/queue", "queue"], ["/jobs", "jobs"], ["/plan", "plan"], ["/cluster", "cluster"], ["/goodput", "goodput"], ["/timeline", "timeline"], ["/events", "events"]]) {
    const at = Date.now();
    const cost = await traced(browser, undefined, async () => {
      await page.goto(wire.url + url);
      await ready(page, id);
    });
    result.first_paint[id] = { ...cost, latency_ms: Date.now() - at };
  }

  result.interactions = {};
  const interact = async (name, act) => {
    result.interactions[name] = await traced(browser, undefined, async () => {
      await act();
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    });
  };
  await page.goto(`${wire.url}/jobs`);
  await ready(page, "jobs");
  await interact("sort the jobs", () => page.getByRole("button", { name: /^GPUs/ }).first().click());
  await interact("open the commands", () => page.keyboard.press("Control+k"));
  await interact("type into the commands", () => page.keyboard.type("run-77"));
  await page.keyboard.press("Escape");
  await page.goto(`${wire.url}/cluster`);
  await ready(page, "cluster");
  await interact("colour the map by health", () => page.getByRole("button", { name: "health" }).click());
  await interact("zoom the map", () => page.getByRole("button", { name: "Closer" }).click());
  result.map_live = await traced(browser, 30, () => pause(30_000));

  const network = await context.newCDPSession(page);
  const followed = page.waitForRequest(/\/api\/v1\/stream/);
  await page.goto(`${wire.url}/`);
  await ready(page, "overview");
  await pause(5_000);
  const [before, stream] = [wire.received(), follow((await followed).url().replace(wire.url, cluster.url))];
  result.idle_live = await traced(browser, 60, () => pause(60_000));
  const perSecond = (bytes) => Number((bytes / 60 / 1_000).toFixed(1));
  result.idle_live.received_kb_per_second = perSecond(wire.received() - before);
  result.idle_live.of_it_the_stream = perSecond(stream.end());

  await pause(MINUTES * 60_000);
  await network.send("HeapProfiler.enable");
  await network.send("HeapProfiler.collectGarbage");
  const { usedSize } = await network.send("Runtime.getHeapUsage");
  result.heap_mb_after = { minutes: MINUTES, mb: Math.round(usedSize / 1e6) };
  result.load_after = loadavg();
} finally {
  if (process.env.HEADWAY_FIGURES) writeFileSync(process.env.HEADWAY_FIGURES, JSON.stringify(result, undefined, 1));
  console.log(JSON.stringify(result, undefined, 1));
  await browser.close();
  await wire?.close();
  await cluster.stop();
}
