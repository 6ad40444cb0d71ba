// The theme as canvas takes it, read anew when it changes.

import { useMemo, useSyncExternalStore } from "react";
import { type Look, type Theme, looks, readTheme } from "./palette";

/** Where Mantine says which theme holds. */
const SCHEME = "data-mantine-color-scheme";

function subscribe(listener: () => void) {
  const observer = new MutationObserver(listener);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: [SCHEME] });
  return () => observer.disconnect();
}

export function useLooks(): { theme: Theme; looks: Look[] } {
  const scheme = useSyncExternalStore(subscribe, () => document.documentElement.getAttribute(SCHEME));
  return useMemo(() => {
    const theme = readTheme();
    return { theme, looks: looks(theme) };
    // The scheme stands for the variables that are read.
  }, [scheme]);
}
