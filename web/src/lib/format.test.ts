import { expect, test } from "vitest";
import { amount, brief, duration, percent, si } from "./format";

test("numbers keep three digits", () => {
  expect(si(0)).toBe("0");
  expect(si(1234.5)).toBe("1.23k");
  expect(si(56789)).toBe("56.8k");
  expect(si(null)).toBe("–");
});

test("durations show two units", () => {
  expect(duration(42)).toBe("42s");
  expect(duration(3725)).toBe("1h 02m");
  expect(duration(undefined)).toBe("–");
});

test("percentages are whole, and little is not nothing", () => {
  expect(percent(0.424)).toBe("42 %");
  expect(percent(0.0048)).toBe("0.5 %");
  expect(percent(0)).toBe("0 %");
});

test("what takes next to no time is told in milliseconds", () => {
  expect(brief(0.0094)).toBe("9 ms");
  expect(brief(1.23)).toBe("1.2 s");
  expect(brief(75)).toBe("1m 15s");
});

test("amounts are grouped, and small ones have decimals", () => {
  expect(amount(1801.4)).toBe("1,801");
  expect(amount(8.746)).toBe("8.75");
});
