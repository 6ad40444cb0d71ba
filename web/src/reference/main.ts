// The REST API's reference at /docs: Redoc, drawn from the document that this very server serves. Everything comes from the
// server; Redoc's search is left out because its worker is a script that the page's Content-Security-Policy forbids.

import * as redoc from "redoc/bundles/redoc.standalone.js";
import "./reference.css";
import { DARK, LIGHT } from "./theme";

const OPTIONS = {
  disableSearch: true,
  hideDownloadButtons: true,
  sideNavStyle: "path-only",
  pathInMiddlePanel: true,
  jsonSamplesExpandLevel: 2,
  scrollYOffset: "header.reference",
};

const preferred = window.matchMedia("(prefers-color-scheme: dark)");

/** The theme that somebody chose on the overview (Mantine keeps it under this name), else the browser's. */
function isDark(): boolean {
  const chosen = localStorage.getItem("mantine-color-scheme-value");
  return chosen === "dark" || (chosen !== "light" && preferred.matches);
}

function draw() {
  const dark = isDark();
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  // Redoc draws once into an element.
  const fresh = document.createElement("main");
  fresh.id = "reference";
  document.getElementById("reference")?.replaceWith(fresh);
  redoc.init("/api/v1/openapi.json", { ...OPTIONS, theme: dark ? DARK : LIGHT }, fresh);
}

preferred.addEventListener("change", draw);
draw();
