// How narrow a table may become before it scrolls within its box. Pure.

/** Windows narrower than this do without a column. */
export type From = "tablet" | "desktop" | "wide";

interface Sized {
  /** As CSS takes it for a column: in pixels, or a share of the table in per cent. */
  width?: string;
  from?: From;
}

/** Columns without a width of their own keep so much, in pixels, and the first, a name mostly, more. */
const LEAST = 96;
const LEAST_FIRST = 130;

/** Returns the least width of a table with these columns, in pixels. Columns with a share must leave enough for the others, or those vanish. */
export function leastWidth(columns: readonly Sized[], hidden: readonly From[]): number {
  let pixels = 0;
  let ofShares = 0;
  let share = 0;
  for (const [index, { width = "", from }] of columns.entries()) {
    if (from && hidden.includes(from)) continue;
    const least = index === 0 ? LEAST_FIRST : LEAST;
    if (width.endsWith("%")) {
      share += Number.parseFloat(width) / 100;
      ofShares += least;
    } else {
      pixels += width.endsWith("px") ? Number.parseInt(width) : least;
    }
  }
  return Math.ceil(Math.max(pixels + ofShares, share < 1 ? pixels / (1 - share) : 0));
}
