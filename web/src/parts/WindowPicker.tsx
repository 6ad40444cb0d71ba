// How far back a page looks. It stands in the URL, so that a link shows the same to another.

import { Link } from "@tanstack/react-router";
import { serverNow } from "../lib/clock";
import "./window-picker.css";

/** How long each is, in which steps it is asked for, and how it is called. */
export const WINDOWS = {
  "1h": { seconds: 3_600, step: "1m", stepSeconds: 60, twice: "2h", words: "hour" },
  "6h": { seconds: 21_600, step: "2m", stepSeconds: 120, twice: "12h", words: "6 hours" },
  "24h": { seconds: 86_400, step: "5m", stepSeconds: 300, twice: "48h", words: "24 hours" },
  "7d": { seconds: 604_800, step: "1h", stepSeconds: 3_600, twice: "14d", words: "7 days" },
} as const;
export type WindowName = keyof typeof WINDOWS;
export const USUAL_WINDOW: WindowName = "24h";

const NAMES = Object.keys(WINDOWS) as WindowName[];

/** A window as the API takes spans: until a past moment, or until now. */
export function spanOf(window: WindowName, at: string | undefined): { from: string; to?: string } {
  const end = at ? Date.parse(at) : serverNow();
  const from = new Date(end - WINDOWS[window].seconds * 1_000).toISOString();
  return at ? { from, to: at } : { from };
}

export function WindowPicker({ value }: { value: WindowName }) {
  return (
    <nav className="window-picker" aria-label="How far back">
      {NAMES.map((name) => (
        <Link
          key={name}
          to="."
          search={(before) => ({ ...before, window: name })}
          aria-current={name === value ? "true" : undefined}
          title={`the last ${WINDOWS[name].words}`}
        >
          {name}
        </Link>
      ))}
    </nav>
  );
}
