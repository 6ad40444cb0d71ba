// Something that happened, drawn over charts: which mark is meant, and where it leads.

export interface Mark {
  /** Seconds since 1970. */
  at: number;
  label: string;
  tone: "plain" | "good" | "warn" | "bad";
  /** The event that it stands for. */
  seq?: number;
}

/** So near a mark is meant. */
const REACH = 6;

/** The mark nearest to a place, in pixels, that leads somewhere; `x`: where a moment stands. */
export function markAt(marks: readonly Mark[], place: number, x: (at: number) => number): Mark | undefined {
  let nearest: Mark | undefined;
  let least = REACH;
  for (const mark of marks) {
    const away = Math.abs(x(mark.at) - place);
    if (mark.seq === undefined || away > least) continue;
    least = away;
    nearest = mark;
  }
  return nearest;
}
