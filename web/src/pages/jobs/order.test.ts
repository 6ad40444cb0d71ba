import { expect, test } from "vitest";
import { asked, liveOnes, pressed, shown, statesOf, toggled } from "./order";

test("states are read one by one, and what is none is left out", () => {
  expect(statesOf("running,failed,frobbed")).toEqual(["running", "failed"]);
  expect(statesOf(undefined)).toEqual([]);
});

test("the past shows what had not ended", () => {
  expect(liveOnes(["queued", "failed"])).toEqual(["queued"]);
  expect(liveOnes(["live"])).toEqual([]);
});

test("what only live jobs have sorts live jobs alone", () => {
  expect(asked("goodput", ["live"])).toBe("goodput");
  expect(asked("-goodput", ["queued", "running"])).toBe("-goodput");
  for (const states of [[], ["ended"], ["running", "failed"]]) expect(asked("goodput", states)).toBeUndefined();
  expect([asked("-name", []), asked("colour", ["live"])]).toEqual(["-name", undefined]);
});

test("a press shows the usual order first, then the other way round", () => {
  expect(pressed("goodput", undefined, [])).toEqual({ sort: "goodput", state: "live" });
  // A table calls the most first descending.
  expect(shown("goodput")).toBe("-goodput");
  expect(pressed("goodput", "goodput", ["running"])).toEqual({ sort: "-goodput", state: "running" });
  expect(pressed("-goodput", "-goodput", ["running"])).toEqual({ sort: "goodput", state: "running" });
  expect(pressed("name", "goodput", ["ended"])).toEqual({ sort: "name", state: "ended" });
});

test("the newest first needs no word", () => {
  expect(shown(undefined)).toBe("submitted");
  expect(pressed("submitted", undefined, []).sort).toBe("-submitted");
  expect(pressed("submitted", "-submitted", []).sort).toBeUndefined();
});

test("states add up, and groups stand alone", () => {
  expect(toggled("queued", [])).toBe("queued");
  expect(toggled("running", ["queued"])).toBe("queued,running");
  expect(toggled("queued", ["queued", "running"])).toBe("running");
  expect(toggled("queued", ["queued"])).toBeUndefined();
  expect(toggled("queued", ["live"])).toBe("queued");
  expect(toggled("ended", ["queued"])).toBe("ended");
});
