// "100 of 522", and the way to further rows. How many are asked for grows in steps, up to what a page can show.

import { useState } from "react";
import { count } from "../lib/format";

const STEPS = [100, 300, 1_000, 2_000] as const;

/** How many rows of a list are wanted; `of` names the list, and another one begins anew. */
export function useWanted(of: string): { wanted: number; more: (() => void) | undefined } {
  const [at, setAt] = useState({ of, step: 0 });
  const step = at.of === of ? at.step : 0;
  const more = step + 1 < STEPS.length ? () => setAt({ of, step: step + 1 }) : undefined;
  return { wanted: STEPS[step] ?? STEPS[0], more };
}

interface Props {
  shown: number;
  /** Absent where nobody counts them. */
  total: number | undefined;
  /** In the plural: "jobs". */
  of: string;
  /** Whether there are further ones. */
  further: boolean;
  more: (() => void) | undefined;
  busy: boolean;
}

export function More({ shown, total, of, further, more, busy }: Props) {
  return (
    <p className="row muted" data-testid="more">
      <span>
        {count(shown)}
        {total !== undefined ? ` of ${count(total)}` : further ? " and more" : ""} {of}
      </span>
      {further && more && (
        <button className="button" onClick={more} disabled={busy}>
          Show more
        </button>
      )}
      {further && !more && <span>No more are shown at once: filter them.</span>}
    </p>
  );
}
