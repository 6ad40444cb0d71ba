// One figure with what it is a part of, how it went and whether that is better than before.

import type { ReactNode } from "react";
import { Spark } from "../chart/Spark";
import { signedPercent } from "../lib/format";
import "./tile.css";

/** How much another window's mean lies above the one before, and which way is better. */
export interface Delta {
  share: number;
  better?: "more" | "less";
  /** What it is held against, in words. */
  than: string;
}

interface Props {
  /** A link to the page that tells more, mostly. */
  title: ReactNode;
  value: ReactNode;
  unit?: string;
  /** What it is a part of, or what it is made of. */
  note?: ReactNode;
  delta?: Delta | undefined;
  spark?: { values: (number | null)[]; label: string } | undefined;
  /** A second line of its own. */
  children?: ReactNode;
  testId?: string;
}

export function Tile({ title, value, unit, note, delta, spark, children, testId }: Props) {
  return (
    <div className="tile" data-testid={testId}>
      <h3 className="tile-title">{title}</h3>
      <p className="tile-value">
        <span className="tile-number">{value}</span> {unit && <span className="muted">{unit}</span>}
      </p>
      {note && <p className="muted">{note}</p>}
      {children}
      <div className="tile-foot">
        {spark && <Spark values={spark.values} label={spark.label} width={104} />}
        {delta && <Change {...delta} />}
      </div>
    </div>
  );
}

/** Below this nobody calls it a change. */
const STEADY = 0.005;

function Change({ share, better, than }: Delta) {
  const steady = Math.abs(share) < STEADY;
  const tone = steady || !better ? "muted" : share > 0 === (better === "more") ? "good" : "warn";
  return (
    <span className={`nowrap ${tone}`} title={`mean, against that of ${than}`}>
      {!steady && <span aria-hidden>{share > 0 ? "▲ " : "▼ "}</span>}
      {steady ? "as before" : signedPercent(share)}
      <span className="hidden-text"> against the mean of {than}</span>
    </span>
  );
}

/** By how much the mean of some values lies above that of others; undefined where either is unknown. */
export function changeOf(now: (number | null)[], before: (number | null)[]): number | undefined {
  const [one, other] = [mean(now), mean(before)];
  return one === undefined || other === undefined || other === 0 ? undefined : one / other - 1;
}

function mean(values: (number | null)[]): number | undefined {
  const known = values.filter((value): value is number => value !== null);
  return known.length === 0 ? undefined : known.reduce((sum, value) => sum + value, 0) / known.length;
}
