// Reservations on the pages: an operator makes and ends one, nodes and waiting jobs name it, and each name leads to it.

import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { emulatedJob, launch, startCluster, until } from "./cluster.mjs";
import { lowContrasts } from "./contrast.mjs";
import { newWindow, open, shots } from "./window.mjs";

let cluster;
let browser;
/** Names of the two nodes. */
let reserved;
let other;

before(async () => {
  cluster = await startCluster();
  browser = await launch();
  [reserved, other] = (await cluster.get("/api/v1/nodes")).items.map((node) => node.name).sort();
});

after(async () => {
  await browser?.close();
  await cluster?.stop();
});

const see = (at, options) => open(browser, cluster, at, options);

/** The reservation of a name, as the server has it. */
async function reservationNamed(name) {
  return (await cluster.get("/api/v1/reservations")).items.find((one) => one.name === name);
}

test("an operator reserves a node after the page has shown which jobs leave, and sees the reservation", async () => {
  await cluster.submit({ jobs: ["job-a", "job-b"].map((name) => emulatedJob(name, { min: 4, max: 4 })) });
  await until("a job to run on each node", async () => (await cluster.get("/api/v1/jobs?state=running")).items.length === 2);
  const here = (await cluster.get(`/api/v1/nodes/${reserved}/gpus`)).gpus[0].job_name;
  const { page, complaints } = await see("/reservations");
  await page.getByText("No reservation is active or upcoming").waitFor();
  await page.getByRole("button", { name: "Reserve nodes" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Give the reservation a name.").waitFor();
  await dialog.getByLabel("Name", { exact: true }).fill("psu-swap");
  await dialog.getByLabel(/^Nodes/).fill(reserved);
  const effect = dialog.getByTestId("reservation-effect");
  await effect.getByText("psu-swap reserves 1 node").waitFor();
  await effect.getByRole("link", { name: here }).waitFor();
  assert.equal(await reservationNamed("psu-swap"), undefined, "a dry run changes nothing");
  await dialog.getByRole("button", { name: "Reserve nodes" }).click();
  await page.getByTestId("reservation-rule").getByText("No job runs on its nodes until it ends.").waitFor();
  assert.match(page.url(), /reservation=psu-swap/);
  const row = page.getByTestId("reservation-table").getByRole("row", { name: /psu-swap/ });
  await row.getByText("active").waitFor();
  const made = await reservationNamed("psu-swap");
  assert.deepEqual([made.nodes, made.maintenance, made.made_by], [[reserved], true, "admin"]);
  assert.deepEqual(complaints, []);
  await page.context().close();
});

test("a reserved node names its reservation in the list, can be filtered by it, and its page says which jobs may start", async () => {
  const { page, complaints } = await see("/cluster?as=table");
  const table = page.getByTestId("cluster-table");
  const badge = table.getByRole("row", { name: new RegExp(reserved) }).getByTestId("reservation-badge");
  await badge.getByText(/ends in/).waitFor();
  assert.match(await badge.innerText(), /reserved now:/);
  assert.equal(await table.getByTestId("reservation-badge").count(), 1, "the other node is not reserved");
  await page.getByLabel("Reservation").selectOption({ label: "psu-swap" });
  await page.getByTestId("cluster-fit").getByText("1 of 2 nodes").waitFor();
  await page.getByLabel("Reservation").selectOption("upcoming");
  await page.getByTestId("cluster-fit").getByText("0 of 2 nodes").waitFor();
  await page.getByLabel("Reservation").selectOption("active");
  await table.getByRole("link", { name: reserved }).click();
  const notice = page.getByTestId("node-reservation");
  await notice.getByText("No job runs on its nodes until it ends.").waitFor();
  assert.match(await notice.innerText(), /reserved:\s+psu-swap\s*, until (\S+ \S+ )?\d\d:\d\d:\d\d \(in /);
  await page.getByTestId("panel-node-trust").getByText(/No: the node is reserved for/).waitFor();
  await page.getByTestId("panel-node-reservations").getByRole("link", { name: "psu-swap" }).click();
  await page.getByTestId("panel-reservation").getByRole("link", { name: reserved }).waitFor();
  // The map's panel of a node has the badge, and closes.
  await page.goto(`${cluster.url}/cluster?as=map&node=${reserved}`);
  const selected = page.getByTestId("panel-cluster-selected");
  await selected.getByTestId("reservation-badge").getByText(/ends in/).waitFor();
  await selected.getByRole("button", { name: "close" }).click();
  await selected.waitFor({ state: "detached" });
  // A narrow window has the same as a glyph with words for a screen reader.
  const phone = await see("/cluster", { viewport: { width: 390, height: 900 } });
  await phone.page.getByRole("row", { name: new RegExp(`${reserved}.*reserved now: psu-swap, ends in`) }).waitFor();
  const listed = phone.page.getByTestId("reserved-nodes");
  await listed.getByText(reserved).waitFor();
  assert.match(await listed.innerText(), /reserved:\s+psu-swap\s*, until (\S+ \S+ )?\d\d:\d\d:\d\d \(in .+\)\s*: /);
  assert.deepEqual([...complaints, ...phone.complaints], []);
  await Promise.all([page, phone.page].map((each) => each.context().close()));
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1440, 768, 390]) {
    test(`what reserves a node can be read, ${colorScheme}, ${width} px`, async () => {
      const { page, complaints, close } = await see("/cluster?as=table", { colorScheme, viewport: { width, height: 900 } });
      const marks = { 1440: "reservation-badge", 768: "reserved-nodes", 390: "reserved-nodes" };
      for (const [at, mark, picture] of [["/cluster?as=table", marks[width], "list"], [`/nodes/${reserved}`, "node-reservation", "node"]]) {
        await page.goto(cluster.url + at);
        const shown = page.getByTestId(mark).first();
        await shown.getByText("psu-swap").waitFor();
        const [name] = await shown.getByRole("link", { name: "psu-swap" }).evaluateAll((links) => links.map((link) => link.clientWidth));
        assert.ok(name > 40, `${at}: the name of the reservation has ${name} px`);
        assert.deepEqual(await page.evaluate(lowContrasts), [], at);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth), 0, `${at} is wider than the window`);
        const cut = await shown.evaluate((element) => element.scrollWidth - element.clientWidth);
        assert.ok(cut <= 0, `${at}: ${cut} px of what reserves the node are cut off`);
        if (picture === "list") {
          const node = await page.getByTestId("cluster-table").getByRole("link", { name: reserved }).boundingBox();
          assert.ok(node.width > 30 && node.x >= 0, `the name of the node is there: ${JSON.stringify(node)}`);
        }
        await page.screenshot({ path: path.join(shots, `reserved-${picture}-${colorScheme}-${width}.png`) });
      }
      assert.deepEqual(complaints, []);
      await close();
    });
  }
}

test("a job that waits for reserved nodes links to the reservation in the queue and on its page", async () => {
  const waits = await until("a job to leave, and wait for the end of the reservation", async () => {
    const { items } = await cluster.get("/api/v1/jobs?state=queued");
    return items.find((job) => job.waiting?.code === "reserved");
  });
  const { page, complaints } = await see("/queue");
  await page.getByTestId("queue-table").getByRole("link", { name: "psu-swap" }).waitFor();
  await page.getByTestId("panel-room").getByRole("link", { name: "psu-swap" }).waitFor();
  await page.getByRole("row", { name: new RegExp(waits.name) }).press("Enter");
  await page.getByTestId("headline").getByRole("link", { name: "psu-swap" }).waitFor();
  await page.getByTestId("reasons").getByRole("link", { name: "psu-swap" }).waitFor();
  await page.goto(`${cluster.url}/jobs/${waits.id}`);
  await page.getByTestId("job-waiting").getByRole("link", { name: "psu-swap" }).click();
  await page.getByTestId("reservation-rule").waitFor();
  assert.deepEqual(complaints, []);
  await page.context().close();
});

test("a user sees reservations and cannot change them", async () => {
  const { secret } = await cluster.post("/api/v1/auth/tokens", { name: "reader", scope: "viewer" });
  const { page, close } = await newWindow(browser);
  await page.goto(`${cluster.url}/reservations?reservation=psu-swap#token=${secret}`);
  await page.getByTestId("reservation-rule").waitFor();
  for (const name of ["Reserve nodes", "End now"]) assert.ok(await page.getByRole("button", { name }).isDisabled(), name);
  await close();
});

test("nothing is done to a reservation in the past, and Escape closes its panel", async () => {
  const { page, complaints } = await see("/reservations?reservation=psu-swap");
  const rule = page.getByTestId("reservation-rule");
  await rule.waitFor();
  await page.getByRole("button", { name: "End now" }).waitFor();
  await page.getByTestId("reservation-table").getByRole("row", { name: /psu-swap/ }).press("Escape");
  await rule.waitFor({ state: "detached" });
  await page.goto(`${cluster.url}/reservations?reservation=psu-swap&at=${new Date(Date.now() - 1_000).toISOString()}`);
  await rule.waitFor();
  await page.getByTestId("past").waitFor();
  assert.equal(await page.locator("#page").getByRole("button", { name: /^(Reserve nodes|End now)$/ }).count(), 0);
  assert.deepEqual(complaints, []);
  await page.context().close();
});

test("an operator ends a reservation with a reason, and the job starts", async () => {
  const { page, complaints } = await see("/reservations?reservation=psu-swap");
  await page.getByRole("button", { name: "End now" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("All jobs may use its node again").waitFor();
  await dialog.getByLabel(/Reason/).fill("the part has not come");
  await dialog.getByRole("button", { name: "End now" }).click();
  await page.getByText("No reservation is active or upcoming").waitFor();
  const { items } = await cluster.get("/api/v1/audit?action=cancel_reservation");
  assert.equal(items[0].reason, "the part has not come");
  await until("the job to start", async () => (await cluster.get("/api/v1/jobs?state=running")).items.length === 2);
  // A link to a reservation that is over leads to an explanation.
  await page.goto(`${cluster.url}/reservations?reservation=psu-swap`);
  await page.getByTestId("reservation-gone").getByText("It is over, was cancelled, or never existed.").waitFor();
  assert.equal(await reservationNamed("psu-swap"), undefined);
  assert.deepEqual(complaints, []);
  await page.context().close();
});

test("a reservation for members is upcoming until it begins", async () => {
  const from = new Date(Date.now() + 3_600_000).toISOString();
  const made = await cluster.post("/api/v1/reservations", { name: "demo", nodes: [other], from, duration_seconds: 7_200, users: ["ada"], projects: ["prod"] });
  const { page, complaints } = await see("/reservations?phase=upcoming");
  await page.getByTestId("reservation-counts").getByRole("button", { name: /upcoming 1/ }).waitFor();
  await page.getByTestId("reservation-table").getByRole("row", { name: /demo/ }).press("Enter");
  const detail = page.getByTestId("panel-reservation");
  await detail.getByText(/^Jobs of others leave its nodes before it begins/).waitFor();
  for (const name of ["ada", "prod", other]) await detail.getByRole("link", { name }).waitFor();
  await detail.getByRole("link", { name: "1 node in Cluster" }).click();
  await page.getByTestId("cluster-fit").getByText("1 of 2 nodes").waitFor();
  assert.match(page.url(), new RegExp(made.id));
  assert.deepEqual(complaints, []);
  await page.context().close();
});
