// What of the page stands in its URL, and how it is changed.

import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import type { ColourBy } from "./palette";

export interface ClusterSearch {
  by?: ColourBy | undefined;
  as?: "map" | "table" | undefined;
  q?: string | undefined;
  type?: string | undefined;
  job?: string | undefined;
  health?: string | undefined;
  /** Phase of a reservation (`active`, `upcoming`), or the id of one. */
  reservation?: string | undefined;
  /** Id or name of the node that is selected. */
  node?: string | undefined;
  sort?: string | undefined;
}

export type Change = (part: ClusterSearch) => void;

/** Filters and selections take the place of those before, so that Back leaves the page. */
export function useClusterSearch(): [ClusterSearch & { at?: string | undefined }, Change] {
  const search = useSearch({ from: "/cluster" });
  const navigate = useNavigate({ from: "/cluster" });
  const change = useCallback<Change>((part) => void navigate({ search: (before) => ({ ...before, ...part }), replace: true }), [navigate]);
  return [search, change];
}
