// Counts that are the filter: how many there are of each kind, and a press shows those alone.

import type { ReactNode } from "react";
import { count } from "../lib/format";
import "./counts.css";

export interface Counted {
  key: string;
  label: ReactNode;
  /** Absent where it is not known. */
  count?: number | undefined;
  title?: string;
  /** Told apart from the others: something is to be done about these. */
  bad?: boolean;
}

interface Props {
  /** What they are, for who does not see them. */
  label: string;
  counts: readonly Counted[];
  pressed: (key: string) => boolean;
  onPress: (key: string) => void;
  testId?: string;
}

export function Counts({ label, counts, pressed, onPress, testId }: Props) {
  return (
    <div role="group" aria-label={label} className="counts" data-testid={testId}>
      {counts.map((one) => (
        <button
          key={one.key}
          className={one.bad ? "count bad" : "count"}
          aria-pressed={pressed(one.key)}
          title={one.title}
          onClick={() => onPress(one.key)}
        >
          {one.label} {one.count !== undefined && <b>{count(one.count)}</b>}
        </button>
      ))}
    </div>
  );
}
