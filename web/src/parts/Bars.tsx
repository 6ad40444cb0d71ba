// Amounts side by side, each with its number: a waterfall of GPU-hours, the steps of a funnel.

import type { ReactNode } from "react";
import "./bars.css";

export interface Bar {
  key: string;
  label: ReactNode;
  value: number;
  /** As CSS takes it. */
  colour?: string;
  /** Right of the number. */
  note?: ReactNode;
  /** Where the others end: marked, with a glyph. */
  breaks?: boolean;
}

export function Bars({ bars, of, format, label }: { bars: Bar[]; of: number; format: (value: number) => string; label: string }) {
  return (
    <ul className="bars" aria-label={label}>
      {bars.map((bar) => (
        <li key={bar.key} className={bar.breaks ? "breaks" : undefined}>
          <span className="bars-label">{bar.label}</span>
          <span className="bars-track" aria-hidden>
            <i style={{ width: `${of > 0 ? Math.min(100, Math.max(bar.value > 0 ? 0.5 : 0, (bar.value / of) * 100)) : 0}%`, background: bar.colour }} />
          </span>
          <span className="bars-value">{format(bar.value)}</span>
          <span className="bars-note">
            {bar.breaks && <span className="bad">✕ breaks here </span>}
            {bar.note}
          </span>
        </li>
      ))}
    </ul>
  );
}
