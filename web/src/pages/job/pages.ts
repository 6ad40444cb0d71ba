// A list that is read page by page, as a panel takes what it is asked for.

import type { Asked } from "../../parts/Panel";

interface Paged<T> extends Omit<Asked<unknown>, "data"> {
  data: { pages: { items: T[] }[] } | undefined;
}

export function gather<T>(of: Paged<T>): Asked<T[]> {
  const { error, dataUpdatedAt, isFetching, refetch } = of;
  return { data: of.data?.pages.flatMap((page) => page.items), error, dataUpdatedAt, isFetching, refetch };
}
