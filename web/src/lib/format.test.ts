import { expect, test } from "vitest";
import { duration, percent, si } from "./format";

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

test("percentages are whole", () => {
  expect(percent(0.424)).toBe("42 %");
});
