import { expect, test } from "vitest";
import { tokenIn } from "./fragment";

test("a fragment carries a token or none", () => {
  expect(tokenIn("#token=hw_12ab")).toBe("hw_12ab");
  expect(tokenIn("#token=a%20b")).toBe("a b");
  for (const other of ["", "#", "#token=", "#jobs", "#x&token=a"]) expect(tokenIn(other)).toBeNull();
});
