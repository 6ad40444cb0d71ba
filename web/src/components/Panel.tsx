// A titled box that carries the age of its data and keeps showing old data when fetching fails.

import { type ReactNode, useEffect, useState } from "react";
import { duration } from "../lib/format";

interface Props {
  title: string;
  unit?: string;
  id?: string;
  className?: string;
  updatedAt: number;
  error?: Error | null;
  children: ReactNode;
}

const OLD_SECONDS = 15;

export function Panel({ title, unit, id, className, updatedAt, error, children }: Props) {
  const now = useNow();
  const age = updatedAt > 0 ? Math.max(0, (now - updatedAt) / 1000) : null;
  return (
    <section className={`panel ${className ?? ""}`} id={id} aria-label={title} data-testid={`panel-${title.toLowerCase().split(" ")[0]}`}>
      <header>
        <h2>{title}</h2>
        {unit && <span className="muted">{unit}</span>}
        <span style={{ flex: 1 }} />
        {error && <span className="bad">{error.message}</span>}
        {age !== null && <span className={age > OLD_SECONDS ? "warn" : "age"}>{duration(age)} ago</span>}
      </header>
      {children}
    </section>
  );
}

function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
