// Windows of the browser that show a cluster's pages.

import { mkdirSync } from "node:fs";
import path from "node:path";

/** Pictures that tests take. */
export const shots = path.join(import.meta.dirname, "screenshots");
mkdirSync(shots, { recursive: true });

/** A window of nobody yet, and what it complains of. `options`: of the browser's context. */
export async function newWindow(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  // Machines that do much else are slow.
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  return { page, complaints, context, close: () => context.close() };
}

/** A window that is logged in, at a page, and follows what happens. */
export async function open(browser, cluster, at = "/", options = {}) {
  const window = await newWindow(browser, options);
  await window.page.goto(`${cluster.url}${at}#token=${cluster.token}`);
  await window.page.getByTestId("connection").getByText("live").waitFor();
  // The stream may be there before the first answer about the cluster is.
  await window.page.locator(".bar-facts").waitFor({ state: "attached" });
  return window;
}
