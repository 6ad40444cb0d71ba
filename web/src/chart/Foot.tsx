// Below a chart: which line is which, that hatched means not measured, and the switch between chart and table.

import type { ReactNode } from "react";

export interface LineKey {
  name: string;
  /** As CSS takes it. */
  colour: string;
  dashed?: boolean | undefined;
}

interface Props {
  keys: readonly LineKey[];
  /** Further keys, behind those of lines. */
  children?: ReactNode;
  /** Somewhere nothing was measured. */
  gaps?: boolean;
  asTable: boolean;
  onSwitch: (asTable: boolean) => void;
}

export function Foot({ keys, children, gaps, asTable, onSwitch }: Props) {
  return (
    <figcaption className="chart-foot">
      {keys.map(({ name, colour, dashed }) => (
        <span key={name} className="chart-key">
          <span className="chart-line" style={{ borderTop: `2px ${dashed ? "dashed" : "solid"} ${colour}` }} aria-hidden />
          {name}
        </span>
      ))}
      {children}
      {gaps && (
        <span className="chart-key" data-testid="chart-gaps">
          <span className="chart-hatched" aria-hidden />
          nothing was measured
        </span>
      )}
      <span className="space" />
      <button className="link" onClick={() => onSwitch(!asTable)} aria-pressed={asTable}>
        {asTable ? "as chart" : "as table"}
      </button>
    </figcaption>
  );
}
