import { expect, test } from "vitest";
import { accountOf, gained, stoodStill } from "./account";
import type { Move } from "./asks";

function move(kind: string, gpus: [number, number], goodput: [number, number], downtime: number, outcome: Move["outcome"] = null): Move {
  return {
    job_id: "j",
    job_name: "j",
    kind,
    from_gpus: gpus[0],
    to_gpus: gpus[1],
    goodput_before_tokens_per_second: goodput[0],
    goodput_after_tokens_per_second: goodput[1],
    downtime_seconds: downtime,
    reason: "",
    outcome,
  };
}

test("a job alone pays back when the server says so", () => {
  // 36 s · 150 / (150 − 100) = 108 s.
  const account = accountOf([move("migration", [4, 8], [100, 150], 36)]);
  expect(account.paysBackSeconds).toBeCloseTo(108);
  expect(account.faster.gpus).toBeCloseTo(2);
  expect(account.standstillHours).toBeCloseTo(0.04);
  // Two GPUs' worth for a day, less 36 s of six GPUs' worth.
  expect(account.firstDayHours).toBeCloseTo(48 - 0.06);
});

test("a job that yields is paid for by the one that it yields to", () => {
  const moves = [move("migration", [8, 4], [100, 60], 10), move("start", [0, 4], [0, 50], 30)];
  const account = accountOf(moves);
  expect(account.slower.gpus).toBeCloseTo(-3.2);
  expect(account.faster.gpus).toBe(4);
  expect(account.standing).toBe(1);
  expect(account.paysBackSeconds).toBeCloseTo((4.8 * 10 + 4 * 30) / 0.8);
});

test("of starts alone nobody stands still, and what only costs never pays back", () => {
  const started = accountOf([move("start", [0, 8], [0, 90], 20)]);
  expect([started.paysBackSeconds, started.standstillHours]).toEqual([null, 0]);
  const stopped = accountOf([move("preempt", [8, 0], [100, 0], 10)]);
  expect(stopped.paysBackSeconds).toBeNull();
  expect(stopped.firstDayHours).toBeCloseTo(-8 * 24);
});

test("what may not be told is not counted", () => {
  expect(accountOf([move("migration", [4, 8], [0, 0], 0)])).toMatchObject({ untold: 1, firstDayHours: 0, paysBackSeconds: null });
});

test("receipts count the moves that are measured", () => {
  const done = { state: "done", downtime_seconds: 72, goodput_before_tokens_per_second: 110, goodput_after_tokens_per_second: 143 };
  const moves = [move("migration", [4, 8], [100, 150], 36, done), move("migration", [2, 4], [1, 2], 9, { state: "starting" })];
  expect(stoodStill(moves)).toEqual({ known: 1, said: 0.04, was: 0.08 });
  const gain = gained(moves)!;
  expect(gain.known).toBe(1);
  expect(gain.said).toBeCloseTo(0.5);
  expect(gain.was).toBeCloseTo(0.3);
  expect(gained([moves[1]!])).toBeUndefined();
});
