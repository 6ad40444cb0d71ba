// A field of text that filters: what is typed takes effect after a pause, or at once with Enter; emptied it filters nothing.

import { useEffect, useRef, useState } from "react";

const PAUSE_MS = 300;

interface Props {
  label: string;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
  /** The field that `/` goes to. */
  first?: boolean;
  hint?: string;
  width?: number;
}

export function Filter({ label, value = "", onChange, first, hint, width = 130 }: Props) {
  const [text, setText] = useState(value);
  const told = useRef(value);
  const latest = useRef(onChange);
  latest.current = onChange;

  // From elsewhere: a link, the way back.
  useEffect(() => {
    if (value === told.current) return;
    told.current = value;
    setText(value);
  }, [value]);

  const tell = (typed: string) => {
    const wanted = typed.trim();
    if (wanted === told.current) return;
    told.current = wanted;
    latest.current(wanted || undefined);
  };
  useEffect(() => {
    const timer = setTimeout(() => tell(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);

  return (
    <input
      type="search"
      className="field"
      style={{ width }}
      aria-label={label}
      placeholder={label}
      title={hint}
      value={text}
      maxLength={300}
      autoComplete="off"
      spellCheck={false}
      data-filter={first ? "" : undefined}
      onChange={(event) => setText(event.target.value)}
      onKeyDown={(event) => event.key === "Enter" && tell(text)}
    />
  );
}
