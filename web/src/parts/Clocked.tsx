// Waits until the server has said how late it is. Spans until now are told by its clock, which the overview tells: a browser's may be wrong, and an
// emulated cluster's time runs faster.

import type { ReactNode } from "react";
import { useOverview } from "../api/queries";
import { Loading } from "./Panel";

/** `at`: a past moment needs no clock. What it holds is not rendered anew whenever the overview is asked. */
export function Clocked({ at, height, children }: { at: string | undefined; height: number; children: ReactNode }) {
  const overview = useOverview();
  return at || overview.data || overview.error ? children : <Loading height={height} />;
}
