import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { serverNow, serverRuns, serverSaid, subscribe } from "./clock";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  serverRuns(1);
  vi.useRealTimers();
});

test("the server's time goes on from what it said last, at its own pace", () => {
  serverSaid("2026-03-01T12:00:00Z");
  vi.advanceTimersByTime(10_000);
  expect(new Date(serverNow()).toISOString()).toBe("2026-03-01T12:00:10.000Z");
  serverRuns(60);
  expect(new Date(serverNow()).toISOString()).toBe("2026-03-01T12:10:00.000Z");
  serverSaid("2026-03-01T12:10:00Z");
  serverRuns(0);
  vi.advanceTimersByTime(1_000);
  expect(new Date(serverNow()).toISOString()).toBe("2026-03-01T12:11:00.000Z");
});

test("ages are told anew at once where the server's clock is another", () => {
  serverSaid("2026-03-01T12:00:00Z");
  const told = vi.fn();
  const stop = subscribe(told);
  serverSaid("2026-03-01T12:00:01Z");
  expect(told).not.toHaveBeenCalled();
  serverSaid("2026-03-02T12:00:00Z");
  expect(told).toHaveBeenCalledOnce();
  stop();
});
