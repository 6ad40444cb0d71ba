import { expect, test } from "vitest";
import { commandOf, queryOf } from "./commands";
import { gather } from "./gather";

const rows = (from: number, to: number) => Array.from({ length: to - from }, (_, at) => ({ id: `${from + at}` }));

test("as many pages are read as the rows take, each row once", async () => {
  const asked: [string | undefined, number][] = [];
  const ask = ({ cursor, limit }: { cursor: string | undefined; limit: number }) => {
    asked.push([cursor, limit]);
    // The second page begins with the first one's last row: somebody came before it.
    const from = cursor === undefined ? 0 : Number(cursor) - 1;
    return Promise.resolve({ items: rows(from, from + limit), next_cursor: `${from + limit}`, total: 9_999 });
  };
  const list = await gather(ask, 700, (row) => row.id);
  expect(asked).toEqual([
    [undefined, 500],
    ["500", 200],
  ]);
  expect(list.items).toEqual(rows(0, 699));
  expect([list.next_cursor, list.total]).toEqual(["699", 9_999]);
});

test("a list that ends is whole", async () => {
  const list = await gather(() => Promise.resolve({ items: rows(0, 3), next_cursor: null }), 100, (row) => row.id);
  expect([list.items.length, list.next_cursor]).toEqual([3, null]);
});

test("a hostile filter stays one word of the line", () => {
  expect(commandOf("headway ps", { user: "a'; rm -rf /", project: "nlp", name: undefined })).toBe(
    "headway ps --user='a'\\''; rm -rf /' --project=nlp",
  );
  expect(queryOf({ q: "a b&c", state: undefined })).toBe("?q=a+b%26c");
  expect(queryOf({})).toBe("");
});
