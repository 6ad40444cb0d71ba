import { expect, test } from "vitest";
import { Fold, type Line } from "./lines";
import { addressOf, indexOf, placeOf } from "./permalink";

const ms = Date.parse("2026-12-24T18:00:00Z");
const line = (rank: number | null, text: string, after = 0): Line => ({ at: ms + after, rank, text });

function entries(folds: boolean, lines: Line[]) {
  const fold = new Fold(folds);
  fold.take(lines);
  return fold.entries;
}

test("an address leads back to its line among others that say nearly the same", () => {
  const all = entries(false, [line(0, "step 1"), line(1, "step 1"), line(1, "step 2"), line(1, "step 1", 20_000)]);
  all.forEach((entry, index) => expect(indexOf(all, placeOf(addressOf(entry))!)).toBe(index));
});

test("a line that was folded into another's is found there", () => {
  const lines = [line(0, "step 1"), line(1, "step 1", 2_000), line(1, "step 2", 3_000)];
  const address = addressOf(entries(false, lines)[1]!);
  const folded = entries(true, lines);
  expect(folded).toHaveLength(2);
  expect(indexOf(folded, placeOf(address)!)).toBe(0);
});

test("what is gone is not found, and what is no address is none", () => {
  const address = addressOf(entries(false, [line(0, "step 1")])[0]!);
  expect(indexOf(entries(false, [line(0, "step 9")]), placeOf(address)!)).toBe(-1);
  expect(placeOf("yesterday.0.abc")).toBeUndefined();
  expect(placeOf(undefined)).toBeUndefined();
  expect(addressOf({ line: line(null, "(told by the server)"), ranks: [] })).toBeUndefined();
  expect(addressOf({ line: { ...line(0, "x"), at: null }, ranks: [0] })).toBeUndefined();
});
