// What each user may have at most, and who has something else.

import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { count } from "../../lib/format";
import type { Policy } from "./asked";

type Quota = NonNullable<Policy["user_quota"]>;

const PARTS = [
  { key: "unfinished_jobs", name: "unfinished jobs", help: "elements of arrays count one by one" },
  { key: "specification_bytes", name: "bytes of specifications", help: "of unfinished jobs, as they are stored" },
  { key: "requests_per_second", name: "requests a second", help: "in the long run, of each server" },
  { key: "request_burst", name: "requests at once", help: "after a silence" },
] as const;

interface Props {
  everybody: Policy["user_quota"];
  own: Policy["user_quotas"];
  disabled: boolean;
  onSet: (quota: Quota | undefined, wrong?: string) => void;
}

export function UserQuotas({ everybody, own, disabled, onSet }: Props) {
  const [typed, setTyped] = useState<Partial<Record<keyof Quota, string>>>({});
  const set = (key: keyof Quota, text: string) => {
    const next = { ...typed, [key]: text };
    setTyped(next);
    const numbers = Object.entries(next).map(([name, value]) => [name, Number(value)] as const);
    const wrong = numbers.find(([name, value]) => !Number.isInteger(value) || value < 0 || next[name as keyof Quota]?.trim() === "");
    onSet({ ...everybody, ...Object.fromEntries(numbers) }, wrong && "a whole number from zero on");
  };
  const others = Object.entries(own ?? {});
  return (
    <fieldset className="settings-section" disabled={disabled}>
      <legend>What each user may have at most</legend>
      {PARTS.map(({ key, name, help }) => {
        const text = typed[key];
        const wrong = text !== undefined && (text.trim() === "" || !Number.isInteger(Number(text)) || Number(text) < 0);
        return (
          <div key={key} className="settings-field">
            <label htmlFor={`quota-${key}`}>{name}</label>
            <div>
              <input id={`quota-${key}`} className="field settings-number" inputMode="numeric" defaultValue={everybody?.[key] ?? ""} onChange={(event) => set(key, event.target.value)} />
              {wrong && (
                <p className="bad" role="alert">
                  a whole number from zero on
                </p>
              )}
              <p className="muted">{help}</p>
            </div>
          </div>
        );
      })}
      {others.length > 0 && (
        <p className="muted">
          {count(others.length)} users have quotas of their own: {others.slice(0, 8).map(([user]) => user).join(", ")}
          {others.length > 8 && " …"}. They stand with the{" "}
          <Link to="/settings" search={{ tab: "people" }}>
            people
          </Link>
          ; <code>headway user quota USER</code> changes them.
        </p>
      )}
    </fieldset>
  );
}
