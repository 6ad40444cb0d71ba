// What a plan costs and brings, in GPU-hours. A job's goodput is counted in the GPUs that it has now, at what they do now: 8 GPUs whose goodput
// rises by half bring four GPUs' worth. That is the measure in which standing still is lost as well, here and in the receipts of past plans.

import type { Move } from "./asks";

const DAY_SECONDS = 86_400;
const HOUR_SECONDS = 3_600;

export interface Side {
  moves: number;
  /** GPUs' worth that these jobs do more, or less, once they train again. */
  gpus: number;
  /** The same over the day after, from when they train again. */
  dayHours: number;
}

export interface Account {
  faster: Side;
  slower: Side;
  /** GPU-hours that jobs which run now stand still, with the work that is done again. */
  standstillHours: number;
  /** How many of them. */
  standing: number;
  /** What the day after brings, all costs taken off: the sum of the three. */
  firstDayHours: number;
  /** When what it brings has paid for what it costs; null: never by this count, or nobody stands still. */
  paysBackSeconds: number | null;
  /** Moves of which nothing is told, and which are not in it. */
  untold: number;
}

/** Over how many GPUs, how many GPUs' worth more a job does, and how many in all; undefined: nothing is told of it. */
function worth(move: Move): { gpus: number; more: number; after: number } | undefined {
  if (move.kind === "start") return { gpus: 0, more: move.to_gpus, after: move.to_gpus };
  const { goodput_before_tokens_per_second: before, goodput_after_tokens_per_second: after, from_gpus: gpus } = move;
  if (!(before > 0)) return undefined;
  return { gpus, more: gpus * (after / before - 1), after: gpus * (after / before) };
}

export function accountOf(moves: readonly Move[]): Account {
  const side = (): Side => ({ moves: 0, gpus: 0, dayHours: 0 });
  const [faster, slower] = [side(), side()];
  let [standstillHours, standing, untold] = [0, 0, 0];
  // After t seconds (t − d) · after is done instead of t · before: per job the same as the server's own pay-back.
  let [rate, late] = [0, 0];
  for (const move of moves) {
    const told = worth(move);
    if (!told) {
      untold++;
      continue;
    }
    const stands = move.downtime_seconds;
    const of = told.more >= 0 ? faster : slower;
    of.moves++;
    of.gpus += told.more;
    of.dayHours += (told.more * (DAY_SECONDS - stands)) / HOUR_SECONDS;
    rate += told.more;
    late += told.after * stands;
    standstillHours += (told.gpus * stands) / HOUR_SECONDS;
    if (told.gpus > 0 && stands > 0) standing++;
  }
  return {
    faster,
    slower,
    standstillHours,
    standing,
    firstDayHours: faster.dayHours + slower.dayHours - standstillHours,
    paysBackSeconds: rate > 0 && standing > 0 ? late / rate : null,
    untold,
  };
}

/** What was said of moves, and what came, as far as it is known by now. */
export interface Came {
  known: number;
  said: number;
  was: number;
}

/** GPU-hours that jobs stood still. */
export function stoodStill(moves: readonly Move[]): Came | undefined {
  const known = moves.filter((move) => move.kind !== "start" && move.outcome?.downtime_seconds != null);
  const hours = (seconds: (move: Move) => number) => known.reduce((sum, move) => sum + (move.from_gpus * seconds(move)) / HOUR_SECONDS, 0);
  if (known.length === 0) return undefined;
  return { known: known.length, said: hours((move) => move.downtime_seconds), was: hours((move) => move.outcome?.downtime_seconds ?? 0) };
}

/** Measured after a move; a job that was stopped does nothing. */
function measuredAfter(move: Move): number | undefined {
  if (move.to_gpus === 0 && move.outcome?.state === "done") return 0;
  return move.outcome?.goodput_after_tokens_per_second ?? undefined;
}

/** What the goodput of moves measured before and after was to gain together, and what it gained, as shares. */
export function gained(moves: readonly Move[]): Came | undefined {
  const pairs = moves.flatMap((move) => {
    const [before, after] = [move.outcome?.goodput_before_tokens_per_second, measuredAfter(move)];
    return move.kind !== "start" && before != null && after !== undefined ? [{ move, before, after }] : [];
  });
  const sum = (of: (pair: (typeof pairs)[number]) => number) => pairs.reduce((total, pair) => total + of(pair), 0);
  const said = sum(({ move }) => move.goodput_after_tokens_per_second) / sum(({ move }) => move.goodput_before_tokens_per_second) - 1;
  const was = sum(({ after }) => after) / sum(({ before }) => before) - 1;
  return Number.isFinite(said) && Number.isFinite(was) ? { known: pairs.length, said, was } : undefined;
}
