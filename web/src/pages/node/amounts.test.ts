import { expect, test } from "vitest";
import { gib, ofGib, spread, withUnit } from "./amounts";

test("memory has one unit, and its denominator", () => {
  expect(gib(80 * 2 ** 30)).toBe("80 GiB");
  expect(gib(1.5 * 2 ** 40)).toBe("1,536 GiB");
  expect(ofGib(1.26 * 2 ** 30, 80 * 2 ** 30)).toBe("1.3 of 80 GiB");
  expect(ofGib(null, 80 * 2 ** 30)).toBe("– of 80 GiB");
});

test("what is not measured is a dash, never a zero", () => {
  expect(withUnit(undefined, "°C")).toBe("–");
  expect(withUnit(0, "%")).toBe("0 %");
});

test("the slowest and the hottest stand out of those that were measured", () => {
  const rows = [{ at: 0, heat: 70 }, { at: 1, heat: null }, { at: 2, heat: 61 }, { at: 3, heat: 83 }];
  expect(spread(rows, (row) => row.heat)).toEqual({ least: { at: 2, heat: 61 }, most: { at: 3, heat: 83 } });
  expect(spread(rows.slice(0, 2), (row) => row.heat)).toBeUndefined();
});
