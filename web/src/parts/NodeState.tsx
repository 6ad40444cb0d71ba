// How a node is, in one word: whether it is in reach, wanted and trusted. Of these the worst is told, as glyph, colour and word.

import type { Tone } from "../lib/colour";

export interface NodeStanding {
  availability: string;
  policy: string;
  standing: string;
}

/** What nodes are sorted into; each is in one class. */
export type NodeClass = "lost" | "drained" | "suspect" | "joining" | "well";

interface Shown {
  kind: NodeClass;
  glyph: string;
  tone: Tone;
  word: string;
}

const WELL: Shown = { kind: "well", glyph: "✓", tone: "good", word: "in service" };

/** From the worst to the least, by whichever of the three words says so. */
const SHOWN: readonly (readonly [keyof NodeStanding, string, Shown])[] = [
  ["availability", "lost", { kind: "lost", glyph: "✕", tone: "bad", word: "lost" }],
  ["availability", "unreachable", { kind: "lost", glyph: "✕", tone: "bad", word: "unreachable" }],
  ["policy", "draining", { kind: "drained", glyph: "‖", tone: "warn", word: "draining" }],
  ["policy", "cordoned", { kind: "drained", glyph: "‖", tone: "warn", word: "cordoned" }],
  ["standing", "quarantined", { kind: "suspect", glyph: "▲", tone: "warn", word: "quarantined" }],
  ["standing", "probation", { kind: "suspect", glyph: "▲", tone: "warn", word: "on probation" }],
  ["availability", "registering", { kind: "joining", glyph: "◌", tone: "muted", word: "registering" }],
];

export function nodeShown(node: NodeStanding): Shown {
  return SHOWN.find(([part, word]) => node[part] === word)?.[2] ?? WELL;
}

export function NodeState({ node, title }: { node: NodeStanding; title?: string }) {
  const { glyph, tone, word } = nodeShown(node);
  return (
    <span className={`nowrap ${tone}`} title={title}>
      <span aria-hidden>{glyph}</span> {word}
    </span>
  );
}
