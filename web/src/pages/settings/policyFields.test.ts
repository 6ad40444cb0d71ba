import { expect, test } from "vitest";
import { type Field, SECTIONS, read, same, shown } from "./policyFields";

const field = (key: string) => SECTIONS.flatMap((section) => section.fields).find((one) => one.key === key) as Field & { kind: "number" };

test("what is typed is read as a number, as none where there may be none, or refused", () => {
  expect(read(field("max_moves"), " 4 ")).toEqual({ value: 4 });
  expect(read(field("max_moves"), "")).toEqual({ value: null });
  expect(read(field("horizon_seconds"), "")).toHaveProperty("wrong");
  for (const text of ["four", "1.5", "-1"]) expect(read(field("max_moves"), text)).toHaveProperty("wrong");
  expect(read(field("power"), "-1")).toEqual({ value: -1 });
});

test("values are told with their units, and none by what it means", () => {
  expect(shown("horizon_seconds", 3600)).toBe("1h 00m (3,600 s)");
  expect(shown("max_moves", null)).toBe("no limit");
  expect(shown("move_windows", [])).toBe("none");
  expect(shown("mode", "auto")).toBe("auto");
});

test("values are the same whatever the order of their parts", () => {
  expect(same({ a: 1, b: [2] }, { b: [2], a: 1 })).toBe(true);
  expect(same(undefined, null)).toBe(true);
  expect(same({ a: 1 }, { a: 2 })).toBe(false);
});
