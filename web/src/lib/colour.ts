// A job has the same colour and texture everywhere and always: by its id. States have colours of their own, with a glyph and a word beside them.

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

/** Beyond eight colours jobs differ by what is drawn over them. */
export type Texture = "plain" | "rising" | "falling" | "dotted";
export const TEXTURES: readonly Texture[] = ["plain", "rising", "falling", "dotted"];

/** By a second hash, beside that of the colour. */
export function textureOf(id: string): Texture {
  let sum = 0;
  for (let at = 0; at < id.length; at++) sum = (sum * 31 + id.charCodeAt(at)) % 65_521;
  return TEXTURES[sum % TEXTURES.length]!;
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
