import { expect, test } from "vitest";
import { shortened } from "./strokes";

test("names keep both their ends", () => {
  expect(shortened("h100-0093", 12)).toBe("h100-0093");
  expect(shortened("rack-07-h100-0093", 9)).toBe("rack…0093");
  expect(shortened("h100-0093", 2)).toBe("");
});
