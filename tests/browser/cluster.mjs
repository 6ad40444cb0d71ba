// A real cluster for the browser: `headway up` with emulated workers, on ports of its own.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { chromium } from "playwright-core";

const root = path.resolve(import.meta.dirname, "../..");
const target = process.env.CARGO_TARGET_DIR ?? path.join(root, "target");
export const binary = process.env.HEADWAY_BINARY ?? path.join(target, "debug/headway");

/** The system's Chromium, which asks nobody but the pages it is shown. */
export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
      ...["--disable-component-update", "--disable-sync"],
    ],
  });
}

/** Starts a cluster, with `more` arguments, and resolves once it says that it is up. */
export async function startCluster(more = []) {
  const dir = mkdtempSync("/tmp/hwb");
  const [people, agents] = [await freePort(), await freePort()];
  const child = spawn(
    binary,
    [
      ...["up", "--data-dir", dir, "--listen", `127.0.0.1:${people}`, "--agent-listen", `127.0.0.1:${agents}`],
      ...["--nodes", "2", "--gpus-per-node", "4", "--stop-grace", "10", ...more],
    ],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, XDG_CONFIG_HOME: dir } },
  );
  let output = "";
  const up = new Promise((resolve, reject) => {
    const read = (chunk) => {
      output += chunk;
      if (output.includes("Headway is up")) resolve();
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`headway up ended with ${code}:\n${output}`)));
  });
  await up;
  const url = `http://127.0.0.1:${people}`;
  const token = readFileSync(path.join(dir, "secrets/admin.token"), "utf8").trim();
  return {
    url,
    token,
    submit: (spec) => request(url, token, "POST", "/api/v1/jobs", spec),
    post: (route, body) => request(url, token, "POST", route, body),
    put: (route, body) => request(url, token, "PUT", route, body),
    get: (route) => request(url, token, "GET", route),
    patch: (route, body) => request(url, token, "PATCH", route, body),
    signal: (signal, ...programs) => signalAll(child.pid, programs, signal),
    async stop() {
      const ended = new Promise((resolve) => child.on("exit", resolve));
      child.kill("SIGTERM");
      await ended;
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/**
 * Sends a signal to the processes that `below` finds, and returns how many there were. Where they are stopped, those follow that they had just started: a
 * database whose parent is stopped starts no more, but one that was missed would go on answering.
 */
function signalAll(ancestor, programs, signal) {
  const reached = new Set();
  for (;;) {
    const missed = below(ancestor, programs).filter((pid) => !reached.has(pid));
    for (const pid of missed) {
      reached.add(pid);
      try {
        process.kill(pid, signal);
      } catch (error) {
        // It has just ended by itself.
        if (error.code !== "ESRCH") throw error;
      }
    }
    if (missed.length === 0 || signal !== "SIGSTOP") return reached.size;
  }
}

/** Ids of the processes that descend from another and whose command lines, each argument ended by a zero, one of some expressions fits. */
function below(ancestor, programs) {
  const read = (pid, file) => {
    try {
      return readFileSync(`/proc/${pid}/${file}`, "utf8");
    } catch {
      return "";
    }
  };
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number);
  const parents = new Map(pids.map((pid) => [pid, Number(read(pid, "stat").split(") ").pop().split(" ")[1])]));
  const descends = (pid) => parents.get(pid) === ancestor || (parents.has(pid) && descends(parents.get(pid)));
  return pids.filter((pid) => descends(pid) && programs.some((program) => program.test(read(pid, "cmdline"))));
}

/** An elastic job whose workers follow a performance model. */
export function emulatedJob(name, { min = 1, max = 8, priority = 50 } = {}) {
  return {
    version: 1,
    name,
    priority,
    resources: { gpus: { min, max } },
    training: {
      model: {
        ...{ layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 176 },
        ...{ gated: true, vocab: 256, seq_len: 64, tied: true },
      },
      precision: "fp32",
      reference_batch: "32 sequences",
      batch: { min: "8 sequences", max: "256 sequences" },
      layouts: { tp: [1], pp: [1], micro_batch: 4 },
      reconfigure: { batch: "live", layout: "restart" },
      checkpoint: { every: "3s", grace: "10s" },
    },
    elastic: { min_runtime: "0s", max_resizes_per_hour: 1000 },
    run: {
      command: ["{headway}", "emulated-worker"],
      env: {
        HEADWAY_EMULATED_SEQ_LEN: "64",
        HEADWAY_EMULATED_FLOPS_PER_TOKEN: "1150000",
        HEADWAY_EMULATED_PARAMETERS: "200000",
        HEADWAY_EMULATED_SPEED: "3",
        HEADWAY_EMULATED_NOISE: "16,400,20000",
      },
    },
  };
}

/** Through the menu that is called as the person is. */
export async function logOut(page, user) {
  await page.getByRole("button", { name: user }).click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
}

/** Polls until `condition` yields something; fails with `what` at the deadline. */
export async function until(what, condition, deadlineMs = 60_000) {
  const end = Date.now() + deadlineMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited ${deadlineMs} ms for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function request(url, token, method, route, body) {
  const answer = await fetch(url + route, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const json = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${route}: ${answer.status} ${JSON.stringify(json)}`);
  return json;
}

export function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
