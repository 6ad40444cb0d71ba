import { expect, test } from "vitest";
import { merged } from "./merge";

test("what is named changes, what is null goes, the rest stays", () => {
  const row = { id: "a", gpus: 4, layout: { dp: 4, tp: 1 }, nodes: ["n1", "n2"] };
  const after = merged(row, { gpus: 8, layout: { dp: 8 }, nodes: ["n3"], loss: 1.5 });
  expect(after).toEqual({ id: "a", gpus: 8, layout: { dp: 8, tp: 1 }, nodes: ["n3"], loss: 1.5 });
  expect(merged(row, { layout: null })).toEqual({ id: "a", gpus: 4, nodes: ["n1", "n2"] });
  expect(row.layout).toEqual({ dp: 4, tp: 1 });
});
