// Okabe–Ito colours: distinguishable with every common colour vision. A job keeps its colour by its id.

const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7a00", "#7a5cc0"];

/** Colours for these ids, in order of first appearance (ids sort by submission). */
export function colours(ids: string[]): Map<string, string> {
  return new Map([...ids].sort().map((id, index) => [id, COLOURS[index % COLOURS.length]!]));
}

/** State = colour + glyph + word; the glyph carries it without colour. */
export const GLYPHS: Record<string, string> = {
  queued: "◷",
  held: "⏸",
  starting: "◌",
  running: "▶",
  stopping: "⇄",
  succeeded: "✓",
  failed: "✕",
  cancelled: "⊘",
};
