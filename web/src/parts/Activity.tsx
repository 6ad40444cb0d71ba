// What a GPU does, as glyph, colour and word, and what that word means.

import type { Tone } from "../lib/colour";

interface Shown {
  glyph: string;
  tone: Tone;
  word: string;
  means: string;
}

const SHOWN: Record<string, Shown> = {
  training: { glyph: "▶", tone: "good", word: "training", means: "its job does steps" },
  starting: { glyph: "◌", tone: "warn", word: "starting", means: "held, but its job has not done its first step" },
  stopping: { glyph: "⇄", tone: "warn", word: "stopping", means: "its job saves, stops, or is not proven gone" },
  idle_no_demand: { glyph: "○", tone: "muted", word: "idle, no demand", means: "free, and no job waits for GPUs" },
  idle_waiting: { glyph: "○", tone: "warn", word: "idle, jobs wait", means: "free although jobs wait: too few, too scattered, or a round is under way" },
  withheld: { glyph: "‖", tone: "muted", word: "withheld", means: "free, but nothing new may start on its node" },
  reserved: { glyph: "▣", tone: "warn", word: "reserved", means: "free, but its node is reserved" },
  unreachable: { glyph: "✕", tone: "bad", word: "out of contact", means: "its node does not answer, and no job holds it" },
  broken: { glyph: "!", tone: "bad", word: "broken", means: "must not be granted" },
  not_held: { glyph: "○", tone: "muted", word: "not held", means: "no job held it; why is not kept" },
  unknown: { glyph: "?", tone: "muted", word: "not known", means: "this page does not know the server's word for it" },
};

export function activityShown(activity: string): Shown {
  return SHOWN[activity] ?? SHOWN.unknown!;
}

export function Activity({ activity }: { activity: string }) {
  const { glyph, tone, word, means } = activityShown(activity);
  return (
    <span className={`nowrap ${tone}`} title={means}>
      <span aria-hidden>{glyph}</span> {word}
    </span>
  );
}
