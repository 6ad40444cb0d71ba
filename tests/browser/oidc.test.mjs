// Logging in through a real identity provider: a browser through the real pages, the command line by device and by loopback, what groups give and take, and what a
// forger sends.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { binary, freePort, launch, logOut, startCluster, until } from "./cluster.mjs";
import { CLIENT, startProvider } from "./provider.mjs";
import { newWindow, shots } from "./window.mjs";

const people = { ada: ["staff", "nlp"], bob: ["staff"], eve: ["chess"], "Zoe Z": ["staff"], admin: ["staff", "ops"] };
let dir;
let provider;
let cluster;
let browser;

before(async () => {
  dir = mkdtempSync("/tmp/hwo");
  provider = await startProvider(await freePort(), people);
  const file = path.join(dir, "oidc.toml");
  writeFileSync(
    file,
    `issuer = "${provider.issuer}"\nclient_id = "${CLIENT}"\nrequired_groups = ["staff"]\n` +
      `[roles]\nops = "operator"\nnlp = "user"\n[projects.nlp]\nnlp = "user"\n`,
  );
  cluster = await startCluster(["--oidc", file]);
  browser = await launch();
  for (const project of ["nlp", "vision"]) await cluster.put(`/api/v1/projects/${project}`, {});
});

after(async () => {
  await browser?.close();
  await cluster?.stop();
  await provider?.close();
  rmSync(dir, { recursive: true, force: true });
});

/** A browser of nobody yet, which sees nothing but this machine. */
async function fresh(options = {}) {
  const { page, context } = await newWindow(browser, { viewport: { width: 1280, height: 800 }, ...options });
  await context.route((url) => url.hostname !== "127.0.0.1", (route) => route.abort());
  return page;
}

/** Goes through the provider's own pages, as far as it shows them, until `done`. */
async function signIn(page, name, done) {
  await until(`${name} to be through the provider's pages`, async () => {
    if (await done()) return true;
    const login = page.locator("input[name=login]");
    if (await login.isVisible().catch(() => false)) {
      await login.fill(name);
      await page.locator("input[name=password]").fill("any");
    }
    const go = page.locator("button[type=submit]").first();
    if (page.url().startsWith(provider.issuer) && (await go.isVisible().catch(() => false))) {
      await go.click({ timeout: 2_000 }).catch(() => undefined);
    }
    return false;
  });
}

/** A new browser in which this person has come back from the provider to a page of ours. */
async function comesBack(name) {
  const page = await fresh();
  await logsIn(page, name);
  return page;
}

async function logsIn(page, name, to = "/licenses") {
  await page.goto(`${cluster.url}/api/v1/auth/oidc/login?return=${encodeURIComponent(to)}`);
  await signIn(page, name, () => page.url().startsWith(cluster.url));
}

/** As the browser's cookies say, also where a page may ask nothing. */
const whoami = async (page) => (await page.request.get(`${cluster.url}/api/v1/auth/whoami`)).json();
const members = async (project) => (await cluster.get(`/api/v1/projects/${project}/members`)).items;
const user = (name) => cluster.get(`/api/v1/users/${name}`);

async function headway(home, ...args) {
  const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: home, XDG_CONFIG_HOME: home } });
  const output = { all: "" };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output.all += chunk));
  const ended = new Promise((resolve) => child.on("close", (code) => resolve({ code, output: output.all })));
  return { output, ended };
}

async function succeeds(home, ...args) {
  const { code, output } = await (await headway(home, ...args)).ended;
  assert.equal(code, 0, output);
  return output;
}

test("the login page shows the provider, light and dark, narrow and wide", async () => {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [380, 1440]) {
      const page = await fresh({ colorScheme, viewport: { width, height: 800 } });
      await page.goto(cluster.url);
      await page.getByRole("link", { name: `Log in with 127.0.0.1` }).waitFor();
      await page.screenshot({ path: path.join(shots, `login-${colorScheme}-${width}.png`) });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${wide} of ${width}`);
      await page.context().close();
    }
  }
});

test("a person logs in with a browser, is whom the provider says, and may what the groups give", async () => {
  const page = await fresh();
  await page.goto(`${cluster.url}/?from=here`);
  await page.getByRole("link", { name: "Log in with" }).click();
  await signIn(page, "ada", () => page.url().startsWith(cluster.url));
  await page.getByTestId("connection").waitFor();
  assert.equal(page.url(), `${cluster.url}/?from=here`, "back to where it began");
  const cookies = await page.context().cookies(cluster.url);
  const session = cookies.find((cookie) => cookie.value.startsWith("hws_"));
  assert.deepEqual([session.httpOnly, session.sameSite], [true, "Strict"]);
  assert.ok(!cookies.some((cookie) => cookie.name.endsWith("-login")), "nothing is left of the login");
  assert.equal(await page.evaluate(() => document.cookie), "");
  const { user: name, scope } = await whoami(page);
  assert.deepEqual([name, scope], ["ada", "user"]);
  const ada = await user("ada");
  assert.deepEqual([ada.role_from, ada.linked], ["groups", true]);
  const [member] = await members("nlp");
  assert.deepEqual([member.user, member.role, member.from_groups], ["ada", "user", true]);
  const { items } = await cluster.get("/api/v1/audit?action=oidc_callback&subject=project:nlp");
  assert.deepEqual([items[0].actor, items[0].reason], [
    "user:ada",
    `login by ${provider.issuer}; groups nlp, staff`,
  ]);
  await logOut(page, "ada");
  await page.getByRole("link", { name: "Log in with" }).waitFor();
  const { items: tokens } = await cluster.get("/api/v1/auth/tokens?user=ada");
  assert.deepEqual(tokens, [], "the session's token is gone with it");
  await page.context().close();
});

test("each login sets anew what groups gave, and leaves what a hand gave", async () => {
  await cluster.put("/api/v1/projects/vision/members/ada", { role: "viewer" });
  people.ada = ["staff", "ops"];
  const page = await comesBack("ada");
  assert.equal((await whoami(page)).scope, "operator");
  assert.deepEqual(await members("nlp"), [], "the group is gone");
  assert.deepEqual((await members("vision")).map((one) => [one.user, one.from_groups]), [["ada", false]]);
  // What an admin says goes before groups, until the admin says otherwise.
  await cluster.put("/api/v1/users/ada", { role: "viewer" });
  const again = await comesBack("ada");
  assert.deepEqual([(await whoami(again)).scope, (await user("ada")).role_from], ["viewer", "hand"]);
  await cluster.put("/api/v1/users/ada/identity", { subject: "ada", role_from: "groups" });
  people.ada = ["staff", "nlp"];
  const last = await comesBack("ada");
  assert.equal((await whoami(last)).scope, "user");
  // Out of the group that lets in, the next login ends all that logins opened.
  people.ada = ["nlp"];
  const out = await comesBack("ada");
  await out.getByText("you are in no group that may log in here").waitFor();
  assert.equal((await whoami(last)).status, 401, "an older session has ended too");
  assert.deepEqual(await members("nlp"), []);
  assert.equal((await user("ada")).role, "viewer");
  const [line] = await until("the refusal in the audit", async () => {
    const { items } = await cluster.get("/api/v1/audit?action=oidc_callback&result=refused");
    return items.length > 0 && items;
  });
  assert.deepEqual([line.actor, line.code], ["identity:ada", "login_refused"]);
  people.ada = ["staff", "nlp"];
  for (const one of [page, again, last, out]) await one.context().close();
});

test("a name that is taken is nobody's to take over: an admin links it", async () => {
  await cluster.put("/api/v1/users/bob", { role: "operator" });
  const refused = await comesBack("bob");
  await refused.getByText("headway user link bob --subject 'bob'").waitFor();
  await refused.screenshot({ path: path.join(shots, "login-refused.png") });
  assert.equal((await whoami(refused)).status, 401);
  for (const name of ["admin", "Zoe Z", "eve"]) {
    const page = await comesBack(name);
    await page.getByText("You are not logged in").waitFor();
    await page.context().close();
  }
  await cluster.put("/api/v1/users/bob/identity", { subject: "bob" });
  const bob = await comesBack("bob");
  const { user: name, scope } = await whoami(bob);
  assert.deepEqual([name, scope], ["bob", "operator"], "by hand, whatever the groups");
  await refused.context().close();
  await bob.context().close();
});

test("forged, stale and foreign answers are refused", async () => {
  const page = await comesBack("ada");
  const begin = `${cluster.url}/api/v1/auth/oidc/login`;
  const now = Math.floor(Date.now() / 1000);
  for (const [what, tamper] of [
    ["another nonce", (token) => provider.signed(token, { nonce: "another" })],
    ["no nonce", (token) => provider.signed(token, { nonce: undefined })],
    ["another audience", (token) => provider.signed(token, { aud: "other" })],
    ["another issuer", (token) => provider.signed(token, { iss: "http://127.0.0.1:1" })],
    ["expired", (token) => provider.signed(token, { exp: now - 120 })],
    ["signed long ago", (token) => provider.signed(token, { iat: now - 7200 })],
    ["none", (token) => provider.unsigned(token)],
    ["the public key as a secret", (token) => provider.hmac(token)],
    ["a stranger's key", (token) => provider.stranger(token)],
  ]) {
    await page.context().clearCookies({ name: /^headway-/ });
    provider.tamper = tamper;
    await logsIn(page, "ada");
    assert.match(await page.locator("main").innerText(), /You are not logged in/, what);
    assert.ok(!(await page.context().cookies(cluster.url)).some((one) => one.value.startsWith("hws_")), what);
  }
  provider.tamper = undefined;
  // An answer that this browser has not asked for, and one to a login that another browser began.
  for (const query of ["code=x&state=y", "code=x", "error=access_denied&state=y"]) {
    const answer = await page.goto(`${cluster.url}/api/v1/auth/oidc/callback?${query}`);
    assert.equal(answer.status(), 403, query);
    await page.getByText("this browser has begun no login here").waitFor();
  }
  const begun = await fetch(begin, { redirect: "manual" });
  const cookie = begun.headers.get("set-cookie").split(";")[0];
  const other = await fetch(`${cluster.url}/api/v1/auth/oidc/callback?code=x&state=wrong`, { headers: { cookie }, redirect: "manual" });
  assert.deepEqual([other.status, (await other.json()).code], [403, "login_failed"]);
  // Whoever wants people sent elsewhere afterwards has them sent to the page.
  await logsIn(page, "ada", "//evil.example/");
  assert.equal(page.url(), `${cluster.url}/`);
  assert.equal((await whoami(page)).user, "ada");
  await page.context().close();
});

test("the command line logs in by a code that is confirmed in a browser, and out again", async () => {
  const home = mkdtempSync(path.join(dir, "cli"));
  const login = await headway(home, "login", "--url", cluster.url, "--no-open");
  const [link] = await until("a link", async () => /http\S+user_code=\S+/.exec(login.output.all));
  const page = await fresh();
  await page.goto(link);
  await signIn(page, "ada", () => page.getByText("Sign-in Success").isVisible().catch(() => false));
  const { code, output } = await login.ended;
  assert.equal(code, 0, output);
  const tokens = path.join(home, "headway/tokens");
  const file = path.join(tokens, readdirSync(tokens)[0]);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.match(await succeeds(home, "whoami"), /^ada with the scope user \(token login on .+, until /);
  const secret = readFileSync(file, "utf8").trim();
  const ask = async (token) => (await fetch(`${cluster.url}/api/v1/auth/whoami`, { headers: { Authorization: `Bearer ${token}` } })).status;
  assert.equal(await ask(secret), 200);
  await succeeds(home, "logout");
  assert.equal(await ask(secret), 401, "revoked, not only forgotten");
  assert.deepEqual(readdirSync(tokens), []);
  const after = await (await headway(home, "whoami")).ended;
  assert.match(after.output, /headway login/);
  await page.context().close();
});

test("the command line logs in with a browser of its machine", async () => {
  const home = mkdtempSync(path.join(dir, "cli"));
  const login = await headway(home, "login", "--url", cluster.url, "--browser", "--no-open");
  const [link] = await until("a link", async () => /http\S+code_challenge=\S+/.exec(login.output.all));
  const page = await fresh();
  // What knocks without the login's state is turned away, and the login goes on.
  const back = new URL(new URL(link).searchParams.get("redirect_uri"));
  assert.equal((await fetch(`${back}?code=x&state=y`)).status, 404);
  await page.goto(link);
  await signIn(page, "ada", () => page.getByText("You are logged in").isVisible().catch(() => false));
  const { code, output } = await login.ended;
  assert.equal(code, 0, output);
  assert.match(await succeeds(home, "whoami"), /^ada with the scope user/);
  await succeeds(home, "logout");
  await page.context().close();
});

test("a provider that changes its keys, or is away, costs nobody who is logged in anything", async () => {
  const page = await comesBack("ada");
  assert.equal((await whoami(page)).user, "ada");
  await provider.close();
  const begun = await fetch(`${cluster.url}/api/v1/auth/oidc/device`, { method: "POST" });
  assert.deepEqual([begun.status, (await begun.json()).code], [503, "provider_away"]);
  assert.equal((await whoami(page)).user, "ada");
  assert.equal((await fetch(`${cluster.url}/readyz`)).status, 200);
  assert.match(await (await fetch(`${cluster.url}/metrics`)).text(), /^headway_oidc_provider_reachable 0$/m);
  await provider.restart();
  await provider.rotate();
  await until("the new key to be believed", async () => {
    const other = await comesBack("ada");
    const { user: name } = await whoami(other);
    await other.context().close();
    return name === "ada";
  });
  assert.match(await (await fetch(`${cluster.url}/metrics`)).text(), /^headway_oidc_provider_reachable 1$/m);
  await page.context().close();
});
