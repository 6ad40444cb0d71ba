// A job has the same colour everywhere and always: by its id. States have colours of their own, with a glyph and a word beside them.

const CATEGORIES = 8;

/** FNV-1a, 32 bits. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  return value >>> 0;
}

/** Which of the categories' colours. */
export function category(id: string): number {
  return hash(id) % CATEGORIES;
}

/** As CSS. */
export function colourOf(id: string): string {
  return `var(--c${category(id)})`;
}

export type Tone = "good" | "warn" | "bad" | "muted" | "plain";

interface Shown {
  glyph: string;
  tone: Tone;
}

const STATES: Record<string, Shown> = {
  queued: { glyph: "◷", tone: "plain" },
  held: { glyph: "‖", tone: "muted" },
  starting: { glyph: "◌", tone: "warn" },
  running: { glyph: "▶", tone: "good" },
  stopping: { glyph: "⇄", tone: "warn" },
  succeeded: { glyph: "✓", tone: "good" },
  failed: { glyph: "✕", tone: "bad" },
  cancelled: { glyph: "⊘", tone: "muted" },
};

export function stateShown(state: string): Shown {
  return STATES[state] ?? { glyph: "•", tone: "plain" };
}
