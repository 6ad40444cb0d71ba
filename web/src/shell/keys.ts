// Keys: `g` and a letter for pages, `/` for the page's filter, `?` for help, Ctrl-K for everything. Single keys can be turned off (WCAG 2.1.4).

import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useSyncExternalStore } from "react";
import { PAGES } from "./pages";

const KEPT = "headway.single-keys";
const listeners = new Set<() => void>();

/** Whether single keys do something, as this browser keeps it. */
export const singleKeys = {
  get: () => localStorage.getItem(KEPT) !== "off",
  set(on: boolean) {
    localStorage.setItem(KEPT, on ? "on" : "off");
    listeners.forEach((listener) => listener());
  },
  use: () =>
    useSyncExternalStore(
      (listener) => {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
      () => singleKeys.get(),
    ),
};

/** Whether Escape was pressed on the page itself: a dialog closes by its own. */
export function escapes({ key, target }: { key: string; target: EventTarget | null }): boolean {
  return key === "Escape" && !(target instanceof HTMLElement && target.closest("[role=dialog]"));
}

/** Whether a key is meant for a field or a dialog, or is the browser's own. */
export function typing(event: KeyboardEvent): boolean {
  const field = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, [contenteditable], [role=dialog]");
  return Boolean(field) || event.ctrlKey || event.metaKey || event.altKey;
}

/** How long after `g` the letter may come. */
const CHORD_MS = 1_500;

export function useKeys({ onCommand, onHelp }: { onCommand: () => void; onHelp: () => void }) {
  const navigate = useNavigate();
  const chord = useRef(Number.NEGATIVE_INFINITY);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        return onCommand();
      }
      if (typing(event) || !singleKeys.get()) return;
      if (event.timeStamp - chord.current < CHORD_MS) {
        chord.current = Number.NEGATIVE_INFINITY;
        const page = PAGES.find((one) => one.key === event.key);
        if (page) {
          event.preventDefault();
          void navigate({ to: page.to, search: {} });
        }
        return;
      }
      const keys: Record<string, () => void> = {
        g: () => (chord.current = event.timeStamp),
        "?": onHelp,
        "/": () => document.querySelector<HTMLInputElement>("[data-filter]")?.focus(),
        L: () => void navigate({ to: ".", search: (before) => ({ ...before, at: undefined }) }),
      };
      const act = keys[event.key];
      if (!act) return;
      if (event.key !== "g") event.preventDefault();
      act();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [navigate, onCommand, onHelp]);
}
