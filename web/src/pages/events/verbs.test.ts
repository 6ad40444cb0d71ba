import { expect, test } from "vitest";
import { GROUPS, groupOf } from "./verbs";

test("a group is what the server and the URL take", () => {
  for (const { name, verbs } of GROUPS) {
    expect(verbs.length, name).toBeLessThanOrEqual(20);
    expect(verbs.join(",").length, name).toBeLessThanOrEqual(300);
  }
});

test("a group is known whatever the order of its verbs", () => {
  const [first] = GROUPS;
  expect(groupOf([...first!.verbs].reverse().join(","))).toBe(first);
  expect(groupOf("job.moved")).toBeUndefined();
  expect(groupOf(undefined)).toBeUndefined();
});
