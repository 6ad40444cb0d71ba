// What the page of goodput asks of the server. Nothing of it is outdated by the stream: it changes once a minute, and a change of every
// job's state is none of it.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";
import { WINDOWS, type WindowName, spanOf } from "../../parts/WindowPicker";

type Schemas = components["schemas"];
export type Goodput = Schemas["Goodput"];
export type History = Schemas["GoodputHistory"];
export type JobGoodput = Schemas["JobGoodput"];
export type Calibration = Schemas["Calibration"];
export type Group = "cluster" | "project" | "job";

/** Figures are kept once a minute. */
export const FIGURES_SECONDS = 60;
/** Predictions come true slowly. */
export const CALIBRATION_SECONDS = 300;

const NO_HISTORY = "the server gave no history";

/** Goodput over a window, of the cluster, its projects or its jobs. */
export function useHistory(group: Group, window: WindowName, at: string | undefined) {
  return useQuery({
    queryKey: ["goodput", group, window, at],
    queryFn: async (): Promise<History> => {
      const query = { ...spanOf(window, at), group, step: WINDOWS[window].step };
      const { history } = await unwrap(api.GET("/api/v1/goodput", { params: { query } }));
      if (!history) throw new Error(NO_HISTORY);
      return history;
    },
    refetchInterval: at ? false : FIGURES_SECONDS * 1_000,
    placeholderData: keepPreviousData,
  });
}

/** What every job makes now, and what it would make on a static split. */
export function useSplit(enabled: boolean) {
  return useQuery({
    queryKey: ["goodput", "now"],
    queryFn: () => unwrap(api.GET("/api/v1/goodput")) as Promise<Goodput>,
    enabled,
    refetchInterval: FIGURES_SECONDS * 1_000,
  });
}

/** How predictions of the thirty days before turned out. */
export function useCalibration(at: string | undefined) {
  return useQuery({
    queryKey: ["calibration", at],
    queryFn: () => unwrap(api.GET("/api/v1/goodput/calibration", { params: { query: at ? { to: at } : {} } })) as Promise<Calibration>,
    refetchInterval: at ? false : CALIBRATION_SECONDS * 1_000,
    placeholderData: keepPreviousData,
  });
}
