// The server's time: clocks of browsers are wrong by minutes, and ages are told from the cluster's.

import { useSyncExternalStore } from "react";

const TICK_MS = 1_000;
let offset = 0;
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

/** The server has just said that it is so late; ISO 8601. */
export function serverSaid(at: string) {
  const told = Date.parse(at);
  if (Number.isFinite(told)) offset = told - Date.now();
}

/** Milliseconds since 1970 by the server's clock. */
export function serverNow(): number {
  return Date.now() + offset;
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = serverNow();
    if (!document.hidden) listeners.forEach((each) => each());
  }, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The server's time, once a second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => {
    if (Math.abs(serverNow() - now) > TICK_MS) now = serverNow();
    return now;
  });
}
