// The server's time: clocks of browsers are wrong by minutes, and ages are told from the cluster's.

import { useSyncExternalStore } from "react";

const TICK_MS = 1_000;
/** Two clocks that are no further apart than this agree. */
const OFF_MS = 2_000;
/** What the server said last, and when that was by the browser's clock. */
let told = { at: Date.now(), here: Date.now() };
let speed = 1;
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

/** The server has just said that it is so late; ISO 8601. Ages that were told by another clock are told anew at once. */
export function serverSaid(at: string) {
  const said = Date.parse(at);
  if (!Number.isFinite(said)) return;
  const off = Math.abs(said - serverNow());
  told = { at: said, here: Date.now() };
  if (off > OFF_MS * speed) tell();
}

/** Seconds of the server's time per second: an emulated cluster's runs faster. */
export function serverRuns(factor: number) {
  if (factor > 0) speed = factor;
}

/** Milliseconds since 1970 by the server's clock. */
export function serverNow(): number {
  return told.at + (Date.now() - told.here) * speed;
}

function tell() {
  now = serverNow();
  listeners.forEach((each) => each());
}

/** Calls once a second, and when the clock was set, until the returned function is called. */
export function subscribe(listener: () => void) {
  listeners.add(listener);
  timer ??= setInterval(() => {
    if (document.hidden) now = serverNow();
    else tell();
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
    if (Math.abs(serverNow() - now) > TICK_MS * speed) now = serverNow();
    return now;
  });
}
