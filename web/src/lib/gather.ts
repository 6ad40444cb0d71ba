// Lists longer than a page.

interface Listed {
  items: object[];
  next_cursor?: string | null | undefined;
}

/** The most that the API gives at once. */
const MOST = 500;

/**
 * Reads pages by their cursors, as many as so many rows take, each row once: between two pages somebody may have moved. All else is the first
 * page's, but for the cursor, which is the last's.
 */
export async function gather<Page extends Listed>(
  ask: (page: { cursor: string | undefined; limit: number }) => Promise<Page>,
  wanted: number,
  idOf: (row: Page["items"][number]) => string,
): Promise<Page> {
  const first = await ask({ cursor: undefined, limit: Math.min(wanted, MOST) });
  const rows = new Map(first.items.map((row) => [idOf(row), row]));
  let cursor = first.next_cursor;
  for (let left = wanted - MOST; left > 0 && cursor; left -= MOST) {
    const next = await ask({ cursor, limit: Math.min(left, MOST) });
    next.items.forEach((row) => rows.set(idOf(row), row));
    cursor = next.next_cursor;
  }
  return { ...first, items: [...rows.values()], next_cursor: cursor };
}
