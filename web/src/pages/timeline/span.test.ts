import { expect, test } from "vitest";
import { moved, spanAt, until, wantedOf, zoomed } from "./span";

const HOUR = 3_600_000;

test("what the URL says is a span that follows the present, or one that stands", () => {
  expect(wantedOf("-24h", undefined)).toEqual({ kind: "live", back: 24 * HOUR });
  expect(wantedOf("2026-11-26T00:00:00Z", "2026-11-26T01:00:00Z").kind).toBe("fixed");
  for (const [from, to] of [["soon", "later"], ["2026-11-26T01:00:00Z", "2026-11-26T00:00:00Z"], [undefined, undefined], ["-6y", undefined]]) {
    expect(wantedOf(from, to)).toEqual({ kind: "live", back: 6 * HOUR });
  }
});

test("beside the past some of what is to come is shown, but not of a past moment", () => {
  const wanted = wantedOf("-6h", undefined);
  expect(spanAt(wanted, 10 * HOUR, false)).toEqual({ from: 4 * HOUR, to: 11 * HOUR });
  expect(spanAt(wanted, 10 * HOUR, true)).toEqual({ from: 4 * HOUR, to: 10 * HOUR });
});

test("of a span that goes beyond a past moment only what is before it is told", () => {
  expect(until({ from: 0, to: 2 * HOUR }, new Date(HOUR).toISOString())).toEqual({ from: 0, to: HOUR });
  expect(until({ from: 5 * HOUR, to: 6 * HOUR }, new Date(HOUR).toISOString())).toEqual({ from: HOUR - 60_000, to: HOUR });
});

test("zooming keeps the moment under the pointer where it is", () => {
  const span = zoomed({ from: 0, to: 8 * HOUR }, 0.5, 2 * HOUR);
  expect(span).toEqual({ from: HOUR, to: 5 * HOUR });
  expect(zoomed({ from: 0, to: HOUR }, 1e-9).to - zoomed({ from: 0, to: HOUR }, 1e-9).from).toBeCloseTo(60_000);
  expect(moved({ from: 0, to: HOUR }, 0.5)).toEqual({ from: HOUR / 2, to: 1.5 * HOUR });
});
