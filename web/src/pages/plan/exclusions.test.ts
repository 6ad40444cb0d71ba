import { expect, test } from "vitest";
import { named } from "./exclusions";

const JOBS = ["018bcfe5-0001-7000-8000-00000000000a", "018bcfe5-0001-7000-8000-00000000000b"];

test("an address names jobs by their ids or by the ends of them", () => {
  expect(named("0000000b", JOBS)).toEqual([JOBS[1]]);
  expect(named(JOBS.join(","), JOBS)).toEqual(JOBS);
  for (const nobody of ["", ",", "0000000c"]) expect(named(nobody, JOBS)).toEqual([]);
});
