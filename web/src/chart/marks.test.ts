import { expect, test } from "vitest";
import { type Mark, markAt } from "./marks";

const mark = (at: number, seq?: number): Mark => ({ at, label: `at ${at}`, tone: "plain", ...(seq === undefined ? {} : { seq }) });
const x = (at: number) => at * 10;

test("the nearest mark within reach is meant, if it leads somewhere", () => {
  const marks = [mark(1, 11), mark(1.5, 12), mark(3)];
  expect(markAt(marks, 14, x)?.seq).toBe(12);
  expect(markAt(marks, 9, x)?.seq).toBe(11);
  expect(markAt(marks, 30, x)).toBeUndefined();
  expect(markAt(marks, 25, x)).toBeUndefined();
});
