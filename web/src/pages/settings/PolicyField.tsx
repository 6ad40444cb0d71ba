// One setting: its name, what it does, its value, and a field to change it.

import { useId, useState } from "react";
import type { Policy } from "./asked";
import { type Field, type Value, read, shown } from "./policyFields";

interface Props {
  field: Field;
  value: Value;
  changed: boolean;
  /** `wrong`: why what is typed is no value. */
  onSet: (value: unknown, wrong?: string) => void;
}

export function PolicyField({ field, value, changed, onSet }: Props) {
  const id = useId();
  const [wrong, setWrong] = useState<string>();
  const set = (next: unknown, why?: string) => {
    setWrong(why);
    onSet(next, why);
  };
  return (
    <div className={changed ? "settings-field changed" : "settings-field"} data-testid={`policy-${field.key}`}>
      <label htmlFor={id}>{field.name}</label>
      <div>
        <Input {...{ id, field, value }} onSet={set} />
        {wrong && (
          <p className="bad" role="alert">
            {wrong}
          </p>
        )}
        <p className="muted" id={`${id}-help`}>
          {field.help}
        </p>
      </div>
    </div>
  );
}

interface InputProps {
  id: string;
  field: Field;
  value: Value;
  onSet: (value: unknown, wrong?: string) => void;
}

function Input({ id, field, value, onSet }: InputProps) {
  const common = { id, className: "field", "aria-describedby": `${id}-help` };
  switch (field.kind) {
    case "choice":
      return (
        <select {...common} defaultValue={String(value)} onChange={(event) => onSet(event.target.value)}>
          {field.choices.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      );
    case "number":
      return (
        <span className="row">
          <input
            {...common}
            className="field settings-number"
            inputMode="decimal"
            defaultValue={value == null ? "" : String(value)}
            placeholder={field.none}
            onChange={(event) => {
              const found = read(field, event.target.value);
              if ("wrong" in found) onSet(undefined, found.wrong);
              else onSet(found.value);
            }}
          />
          {field.unit && <span className="muted">{typeof value === "number" && value >= 60 ? shown(field.key, value) : field.unit}</span>}
        </span>
      );
    case "lines":
      return (
        <textarea
          {...common}
          className="field settings-lines"
          rows={2}
          defaultValue={((value as string[] | null | undefined) ?? []).join("\n")}
          onChange={(event) =>
            onSet(
              event.target.value
                .split("\n")
                .map((line) => line.trim())
                .filter(Boolean),
            )
          }
        />
      );
    case "json":
      return (
        <textarea
          {...common}
          className="field mono settings-lines"
          rows={2}
          defaultValue={value == null ? "" : JSON.stringify(value)}
          onChange={(event) => {
            const text = event.target.value.trim();
            try {
              onSet(text === "" ? null : JSON.parse(text));
            } catch {
              onSet(undefined, "this is no JSON");
            }
          }}
        />
      );
    case "approval":
      return <Approval id={id} value={value as Policy["auto_approve"]} onSet={onSet} />;
  }
}

const USUAL = { max_moves: 1, max_lost_gpu_hours: 1, preempt: false };

/** What needs nobody: bounds on moves and on time that stands still. */
function Approval({ id, value, onSet }: { id: string; value: Policy["auto_approve"]; onSet: (value: unknown, wrong?: string) => void }) {
  const [rule, setRule] = useState(value ?? undefined);
  const set = (next: typeof rule) => {
    setRule(next);
    const numbers = next ? [next.max_moves, next.max_lost_gpu_hours] : [];
    const wrong = numbers.every((one) => Number.isFinite(one) && one >= 0) && (!next || Number.isInteger(next.max_moves)) ? undefined : "bounds are numbers from zero on, moves whole ones";
    onSet(next ?? null, wrong);
  };
  const number = (text: string) => (text.trim() === "" ? Number.NaN : Number(text));
  return (
    <div className="stack">
      <label className="row settings-check">
        <input type="checkbox" id={id} aria-describedby={`${id}-help`} checked={rule !== undefined} onChange={(event) => set(event.target.checked ? USUAL : undefined)} />
        some plans need nobody
      </label>
      {rule && (
        <span className="row">
          <label className="row">
            moves at most <input className="field settings-short" inputMode="numeric" defaultValue={rule.max_moves} onChange={(event) => set({ ...rule, max_moves: number(event.target.value) })} />
          </label>
          <label className="row">
            GPU-hours that stand still at most{" "}
            <input className="field settings-short" inputMode="decimal" defaultValue={rule.max_lost_gpu_hours} onChange={(event) => set({ ...rule, max_lost_gpu_hours: number(event.target.value) })} />
          </label>
          <label className="row settings-check">
            <input type="checkbox" checked={rule.preempt ?? false} onChange={(event) => set({ ...rule, preempt: event.target.checked })} />a job may lose all its GPUs
          </label>
        </span>
      )}
    </div>
  );
}
