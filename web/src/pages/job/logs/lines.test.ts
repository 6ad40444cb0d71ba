import { expect, test } from "vitest";
import { type Entry, Fold, type Line, filterOf, missing, plain, readLine, silence, spans, toneOf } from "./lines";

const AT = "2026-12-24T18:00:00Z";
const ms = Date.parse(AT);
const line = (rank: number, text: string, after = 0): Line => ({ at: ms + after, rank, text });

test("a line has its time and, where several were asked for, its rank", () => {
  expect(readLine(`${AT} [rank 3] loss 2.1`, [0, 3])).toEqual({ at: ms, rank: 3, text: "loss 2.1" });
  expect(readLine(`${AT} [rank 3] is what it prints`, [0])).toEqual({ at: ms, rank: 0, text: "[rank 3] is what it prints" });
  expect(readLine("- [rank 1] no time", [0, 1])).toEqual({ at: null, rank: 1, text: "no time" });
});

test("what the server says of the output is no rank's", () => {
  const told = "(the first 64 of 128 ranks: no more are read at once)";
  expect(readLine(told, [0, 1])).toEqual({ at: null, rank: null, text: told });
  expect(readLine("[rank 5] (cannot be read: node n5 is not connected)", [4, 5]).rank).toBeNull();
});

test("nothing that a terminal would obey is left", () => {
  expect(plain("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07plain")).toBe("red and plain");
  expect(plain("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\")).toBe("link");
  expect(plain("10 %\r50 %\r100 %\r")).toBe("100 %");
  expect(plain("a\u202egnp.exe\x07\u2028b\tc")).toBe("a�gnp.exe��b\tc");
  expect(plain("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
});

test("what ranks say alike is one entry, and who did not say it is told", () => {
  const fold = new Fold(true);
  const lines = [line(0, "step 1"), line(1, "step 1", 2_000), line(3, "step 1", 4_000), line(0, "step 2", 20_000)];
  fold.take(lines);
  const { entries } = fold;
  expect(entries.map((one) => [one.line.text, one.ranks])).toEqual([
    ["step 1", [0, 1, 3]],
    ["step 2", [0]],
  ]);
  expect(missing(entries[0]!, [0, 1, 2, 3])).toEqual([2]);
  expect(missing(entries[1]!, [0, 1, 2, 3])).toEqual([]);
  lines.push(line(0, "step 1", 21_000), line(1, "step 2", 50_000));
  fold.take(lines);
  expect(entries.length).toBe(4);
  const whole = new Fold(false);
  whole.take(lines);
  expect(whole.entries.length).toBe(6);
});

test("what a filter hides is counted, and errors are noticed", () => {
  const fold = new Fold(true, (text) => text.includes("loss"));
  fold.take([line(0, "loss 2"), line(1, "loss 2"), line(0, "RuntimeError: no memory")]);
  expect([fold.entries.length, fold.hidden, fold.failing]).toEqual([1, 1, false]);
  fold.take([line(0, "loss 2"), line(1, "loss 2"), line(0, "RuntimeError: no memory"), line(0, "error in the loss")]);
  expect([fold.entries.length, fold.hidden, fold.failing]).toEqual([2, 1, true]);
});

test("the rank that fell silent is found", () => {
  const last = new Map([0, 1, 2, 3].map((rank) => [rank, ms]));
  last.set(2, ms - 60_000);
  expect(silence([0, 1, 2, 3], last, 15_000)).toEqual({ ranks: [2], othersAt: ms });
  last.delete(2);
  expect(silence([0, 1, 2, 3], last, 15_000)).toEqual({ ranks: [2], othersAt: ms });
  expect(silence([0, 1, 2, 3], new Map([[0, ms]]), 15_000)).toBeUndefined();
  expect(silence([0], new Map([[0, ms]]), 15_000)).toBeUndefined();
});

test("ranks are written as spans", () => {
  expect(spans([])).toBe("");
  expect(spans([3])).toBe("3");
  expect(spans([3, 4, 17, 18, 19])).toBe("3, 4, 17–19");
});

test("filters are text or patterns", () => {
  const shows = (q: string, text: string) => (filterOf(q) as (text: string) => boolean)(text);
  expect(shows("LOSS", "the loss")).toBe(true);
  expect(shows("/step \\d+5$/", "step 105")).toBe(true);
  expect(shows("a.c", "abc")).toBe(false);
  expect(typeof filterOf("/(/")).toBe("string");
  expect(filterOf("")).toBeUndefined();
});

test("errors and warnings are told apart", () => {
  expect(toneOf("RuntimeError: CUDA error: out of memory")).toBe("bad");
  expect(toneOf("ValueError: no such file")).toBe("bad");
  expect(toneOf("UserWarning: x")).toBe("warn");
  expect(toneOf("[WARNING] slow")).toBe("warn");
  expect(toneOf("step 7 loss 2.0")).toBeUndefined();
});

test("an entry without ranks misses nobody", () => {
  const entry: Entry = { line: { at: null, rank: null, text: "x" }, ranks: [] };
  expect(missing(entry, [0, 1])).toEqual([]);
});
