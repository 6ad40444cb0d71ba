// Plans and moves in words.

import type { Plan } from "../../api/client";
import type { Tone } from "../../lib/colour";
import { count, duration, execution, gpuHours } from "../../lib/format";
import { accountOf } from "./account";
import { type Configuration, type Move, isUnderWay } from "./asks";

interface Shown {
  glyph: string;
  tone: Tone;
  word: string;
}

const STATES: Record<string, Shown> = {
  proposed: { glyph: "◷", tone: "warn", word: "waits for approval" },
  adopted: { glyph: "▶", tone: "good", word: "in force" },
  superseded: { glyph: "✓", tone: "muted", word: "carried out and replaced" },
  rejected: { glyph: "⊘", tone: "muted", word: "rejected" },
  stale: { glyph: "◌", tone: "warn", word: "out of date" },
};

export function stateOf(state: string): Shown {
  return STATES[state] ?? { glyph: "•", tone: "plain", word: state };
}

/** "in force, 3 of 5 moves done". */
export function progressOf(plan: Plan): string | undefined {
  const told = plan.moves.filter((move) => move.outcome);
  if (!isUnderWay(plan)) return undefined;
  const done = told.filter((move) => move.outcome?.state === "done").length;
  return `${done} of ${told.length} moves are done`;
}

/** What a move is for its job: the glyph and the colour say whether it wins or yields. */
export function kindOf(move: Move): Shown {
  if (move.kind === "start") return { glyph: "▶", tone: "good", word: "starts" };
  if (move.kind === "preempt") return { glyph: "■", tone: "warn", word: "is stopped" };
  if (move.to_gpus > move.from_gpus) return { glyph: "▲", tone: "good", word: "grows" };
  if (move.to_gpus < move.from_gpus) return { glyph: "▼", tone: "warn", word: "shrinks" };
  if (move.kind === "migration") return { glyph: "⇄", tone: "plain", word: "changes GPUs" };
  if (move.kind === "layout") return { glyph: "⇄", tone: "plain", word: "changes layout" };
  return { glyph: "≈", tone: "plain", word: "changes batch" };
}

const OUTCOMES: Record<string, Shown> = {
  waiting: { glyph: "◷", tone: "plain", word: "waits" },
  stopping: { glyph: "⇄", tone: "warn", word: "stops" },
  starting: { glyph: "◌", tone: "warn", word: "starts" },
  done: { glyph: "✓", tone: "good", word: "done" },
  overtaken: { glyph: "⊘", tone: "muted", word: "overtaken" },
};

export function outcomeOf(state: string): Shown {
  return OUTCOMES[state] ?? { glyph: "•", tone: "plain", word: state };
}

/** "dp8 tp4 pp2 zero1". */
export function layout(of: Configuration | null | undefined): string {
  if (!of) return "–";
  const { dp, tp, pp } = of.layout;
  return [`dp${dp}`, tp > 1 ? `tp${tp}` : "", pp > 1 ? `pp${pp}` : "", ...execution(of.execution)].filter(Boolean).join(" ");
}

/** "dp8 tp4, batch 1,024 in micro-batches of 4". */
export function configuration(of: Configuration | null | undefined): string {
  if (!of) return "not told";
  return `${layout(of)}, batch ${count(of.global_batch_sequences)} in micro-batches of ${count(of.micro_batch_sequences)}`;
}

/** "64 → 48", or "64" where nothing changes. */
export function change<T>(from: T, to: T, format: (value: T) => string = String): string {
  const [before, after] = [format(from), format(to)];
  return before === after ? before : `${before} → ${after}`;
}

function jobs(many: number): string {
  return many === 1 ? "1 job" : `${count(many)} jobs`;
}

function list(parts: string[]): string {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

/** "Moves 2 jobs and starts 1, 24 GPUs in all; 57s of standstill, 1.2 GPU-h. Pays back in 11m 00s." */
export function sentence(moves: readonly Move[]): string {
  const of = (kinds: (move: Move) => boolean) => moves.filter(kinds).length;
  const [starts, stops] = [of((move) => move.kind === "start"), of((move) => move.kind === "preempt")];
  const moved = moves.length - starts - stops;
  const parts = [
    moved > 0 ? `moves ${jobs(moved)}` : "",
    stops > 0 ? `stops ${jobs(stops)}` : "",
    starts > 0 ? `starts ${jobs(starts)}` : "",
  ].filter(Boolean);
  if (parts.length === 0) return "Moves nobody.";
  const gpus = moves.reduce((sum, move) => sum + Math.max(move.from_gpus, move.to_gpus), 0);
  const words = list(parts);
  const account = accountOf(moves);
  const stands = moves.filter((move) => move.kind !== "start").reduce((sum, move) => sum + move.downtime_seconds, 0);
  const cost = stands > 0 || account.untold > 0 ? `${duration(stands)} of standstill in all, ${gpuHours(account.standstillHours)}` : "nobody stands still";
  const pays = account.paysBackSeconds === null ? "" : ` Pays back in ${duration(account.paysBackSeconds)}.`;
  const untold = account.untold > 0 ? ` What ${jobs(account.untold)} of others lose and gain is not told to you.` : "";
  return `${words[0]!.toUpperCase()}${words.slice(1)}, ${count(gpus)} ${gpus === 1 ? "GPU" : "GPUs"} in all; ${cost}.${pays}${untold}`;
}

/** "llama-7b: 8 → 16 GPUs". */
export function inWords(move: Move): string {
  return `${move.job_name} ${kindOf(move).word}: ${change(move.from_gpus, move.to_gpus, count)} GPUs`;
}

/** "+46.2 GPU-h", with a real minus. */
export function signedHours(hours: number): string {
  return `${hours < 0 ? "−" : "+"}${gpuHours(Math.abs(hours))}`;
}

/** How an objective changes, where its sign allows a share. */
export function objectiveShare(plan: { objective: number; objective_before: number }): number | undefined {
  return plan.objective_before > 0 ? plan.objective / plan.objective_before - 1 : undefined;
}

/** 376.1234 → "376.12": five digits. */
export function objective(value: number): string {
  return Intl.NumberFormat("en", { maximumSignificantDigits: 5 }).format(value).replace("-", "−");
}
