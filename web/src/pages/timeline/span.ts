// Which span of time is shown: as the URL says it, and as it is moved and zoomed. Milliseconds since 1970. Pure.

export interface Span {
  from: number;
  to: number;
}

/** A span that follows the present, or one that stands. */
export type Wanted = { kind: "live"; back: number } | { kind: "fixed"; span: Span };

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
export const SHORTEST = MINUTE;
/** Beyond this bars are too short to be told apart. */
const LONGEST = 60 * DAY;
const USUAL_BACK = 6 * HOUR;
/** Beside what was, this part of it is shown of what is still to come. */
const AHEAD = 6;
const UNITS: Record<string, number> = { m: MINUTE, h: HOUR, d: DAY };

/** "-6h" follows the present; two moments stand. What is neither is left out. */
export function wantedOf(from: string | undefined, to: string | undefined): Wanted {
  const [, amount, unit] = /^-(\d{1,4})([mhd])$/.exec(from ?? "") ?? [];
  if (amount && unit) return { kind: "live", back: bounded(Number(amount) * UNITS[unit]!) };
  const span = { from: Date.parse(from ?? ""), to: Date.parse(to ?? "") };
  if (span.to - span.from >= SHORTEST && span.to - span.from <= LONGEST) return { kind: "fixed", span };
  return { kind: "live", back: USUAL_BACK };
}

/** The span that is shown at a moment; `past`: nothing after it is told. */
export function spanAt(wanted: Wanted, now: number, past: boolean): Span {
  if (wanted.kind === "fixed") return wanted.span;
  return { from: now - wanted.back, to: past ? now : now + wanted.back / AHEAD };
}

/** What of a span is over at a past moment; the shortest time before it, where nothing is. */
export function until(span: Span, at: string | undefined): Span {
  if (!at) return span;
  const to = Math.min(span.to, Date.parse(at));
  return { from: Math.min(span.from, to - SHORTEST), to };
}

function bounded(length: number): number {
  return Math.min(LONGEST, Math.max(SHORTEST, length));
}

/** Longer or shorter by a factor, with one moment staying where it is. */
export function zoomed({ from, to }: Span, factor: number, around = (from + to) / 2): Span {
  const length = bounded((to - from) * factor);
  const share = (around - from) / (to - from);
  const begins = around - share * length;
  return { from: begins, to: begins + length };
}

/** Earlier or later by a share of its length. */
export function moved({ from, to }: Span, share: number): Span {
  const by = (to - from) * share;
  return { from: from + by, to: to + by };
}
