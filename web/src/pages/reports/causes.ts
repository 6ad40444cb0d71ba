// What GPU-time goes into, as usage tells it, in the order in which it is shown.

export interface Cause {
  cause: string;
  words: string;
  colour: string;
}

export const CAUSES: readonly Cause[] = [
  { cause: "useful", words: "steps that counted", colour: "var(--good)" },
  { cause: "starting", words: "from the grant to the first step", colour: "var(--c4)" },
  { cause: "saving", words: "from the decision to stop until the GPUs were free", colour: "var(--c1)" },
  { cause: "rework", words: "steps that nothing had saved", colour: "var(--c5)" },
  { cause: "displaced", words: "saving and rework where the GPUs went to others", colour: "var(--c3)" },
  { cause: "idle", words: "held while the processes hung", colour: "var(--edge)" },
];
