import { useSearch } from "@tanstack/react-router";
import { Act } from "../../parts/Act";

/** An action, unless a past moment is shown: there nothing can be done. */
export function Deed<T>(props: Parameters<typeof Act<T>>[0]) {
  const { at } = useSearch({ from: "__root__" });
  return at ? null : <Act {...props} />;
}
