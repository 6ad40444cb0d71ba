// Classes of nodes by name, with the glyphs that the map draws.

import type { Tone } from "../../lib/colour";
import type { Health } from "./fleet";

export const HEALTH_SHOWN: Record<Health, { glyph: string; tone: Tone; word: string }> = {
  well: { glyph: "✓", tone: "good", word: "in service" },
  suspect: { glyph: "▲", tone: "warn", word: "suspect: quarantined or on probation" },
  drained: { glyph: "‖", tone: "warn", word: "draining or cordoned" },
  lost: { glyph: "✕", tone: "bad", word: "lost or unreachable" },
  broken: { glyph: "!", tone: "bad", word: "with a broken GPU" },
  joining: { glyph: "◌", tone: "muted", word: "registering" },
};
