import { stateShown } from "../lib/colour";

/** A state as colour, glyph and word. */
export function State({ state, cause }: { state: string; cause?: string | null }) {
  const { glyph, tone } = stateShown(state);
  return (
    <span className={`nowrap ${tone}`} title={cause ?? undefined}>
      <span aria-hidden>{glyph}</span> {state}
    </span>
  );
}
