import { expect, test } from "vitest";
import { category, textureOf } from "../../lib/colour";
import { placedFrom } from "./fixture";
import { fleetOf } from "./fleet";
import { CIVIDIS, type Theme, contrast, inkOn, lookOf, looks } from "./palette";

const theme: Theme = {
  ...{ panel: "#ffffff", raised: "#eeeeee", line: "#dddddd", edge: "#777777", text: "#111111", muted: "#555555" },
  ...{ accent: "#0b5fa5", good: "#006a4a", warn: "#8a5000", bad: "#b3261e", hatch: "#c6ccd3" },
  categories: ["#000001", "#000002", "#000003", "#000004", "#000005", "#000006", "#000007", "#000008"],
};
const all = looks(theme);
const fleet = fleetOf(placedFrom({ r: { n1: "ab.!", n2: "cc??" } }, { n2: { policy: "draining" } }));
const of = (by: Parameters<typeof lookOf>[1], shares?: Float32Array) => [...lookOf(fleet, by, shares)].map((look) => all[look]!);

test("a job has its colour and texture, whoever else is there", () => {
  const [a] = of("job");
  expect(a).toMatchObject({ fill: theme.categories[category("job-a")], texture: textureOf("job-a") });
});

test("what nobody holds is open, with an edge that says why", () => {
  const shown = of("job");
  expect(shown[2]).toMatchObject({ fill: theme.panel, edge: theme.edge });
  expect(shown[6]).toMatchObject({ fill: theme.panel, edge: theme.warn });
});

test("a broken GPU is crossed out by whatever the map is coloured", () => {
  for (const by of ["job", "activity", "utilisation", "health"] as const) expect(of(by)[3]?.crossed).toBe(true);
});

test("a node's class colours its GPUs", () => {
  const shown = of("health");
  expect([shown[0]!.fill, shown[4]!.fill]).toEqual([theme.good, theme.muted]);
});

test("what was not measured is hatched, never the colour of zero", () => {
  const shown = of("utilisation", Float32Array.from([0, 1, 0.55, 0, Number.NaN, Number.NaN, Number.NaN, Number.NaN]));
  expect(shown.slice(0, 3).map((look) => look.fill)).toEqual([CIVIDIS[0], CIVIDIS[9], CIVIDIS[5]]);
  expect(shown[4]).toMatchObject({ fill: theme.panel, texture: "hatch" });
});

test("steps that are hardly told from the ground have an edge", () => {
  for (const fill of CIVIDIS) expect(all.find((look) => look.fill === fill)?.edge !== undefined).toBe(contrast(fill, theme.panel) < 3);
});

test("what is written on a colour can be read", () => {
  expect(contrast("#000000", "#ffffff")).toBeCloseTo(21);
  for (const fill of [...CIVIDIS, theme.good, theme.bad]) expect(contrast(fill, inkOn(fill))).toBeGreaterThanOrEqual(4.5);
});
