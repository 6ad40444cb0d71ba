// Actions: what would come of one is said before it is done, by a dry run of the same request; each asks for a reason, and a key keeps a
// second press from doing it twice.

import { Modal } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useId, useState } from "react";
import { ApiError } from "../api/client";
import { type Role, useCan } from "../api/session";
import { singleKeys, typing } from "../shell/keys";
import { Failed } from "./Panel";
import "./act.css";

/** How a request is made: as a dry run first, then in earnest. */
export interface Doing {
  dryRun: boolean;
  reason: string | undefined;
  key: string;
}

interface Props<T> {
  label: string;
  /** Of the dialog; a sentence in the imperative. */
  title: string;
  /** Who may. */
  role: Role;
  danger?: boolean;
  /** Its answer is what `effect` is made from; pages that were outdated by it are asked anew. */
  request: (doing: Doing) => Promise<T>;
  /** What would come of it, from the dry run's answer. */
  effect?: (answer: T) => ReactNode;
  /** Further fields of the dialog, above the reason. */
  children?: ReactNode;
  /** Has to be typed before: for what cannot be undone. */
  typed?: string;
  /** The request takes no reason. */
  withoutReason?: boolean;
  /** A key of the keyboard that opens it, told in the button's title. */
  hotkey?: string;
  disabled?: string | undefined;
  onDone?: (answer: T) => void;
}

export function Act<T>(props: Props<T>) {
  const { label, role, danger, disabled, hotkey } = props;
  const may = useCan(role);
  const [open, setOpen] = useState(false);
  const why = may ? disabled : `for the role ${role} and above`;
  useHotkey(hotkey, why === undefined, () => setOpen(true));
  return (
    <>
      <button className={`button ${danger ? "danger" : ""}`} disabled={why !== undefined} title={why ?? (hotkey && `${label} (${hotkey})`)} onClick={() => setOpen(true)}>
        {label}
      </button>
      {open && <Dialog {...props} onClose={() => setOpen(false)} />}
    </>
  );
}

/** A single key does it, where keys do something and nobody types. */
function useHotkey(key: string | undefined, on: boolean, act: () => void) {
  useEffect(() => {
    if (!key || !on) return;
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== key || typing(event) || !singleKeys.get()) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
}

function Dialog<T>({ title, danger, label, request, effect, children, typed, withoutReason, onDone, onClose }: Props<T> & { onClose: () => void }) {
  const queries = useQueryClient();
  const [key] = useState(() => crypto.randomUUID());
  const [reason, setReason] = useState("");
  const [word, setWord] = useState("");
  const [foreseen, setForeseen] = useState<{ answer?: T; error?: Error }>({});
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const field = useId();

  useEffect(() => {
    let gone = false;
    request({ dryRun: true, reason: undefined, key: crypto.randomUUID() }).then(
      (answer) => !gone && setForeseen({ answer }),
      (failed: Error) => !gone && setForeseen({ error: failed }),
    );
    return () => {
      gone = true;
    };
  }, [request]);

  const act = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const answer = await request({ dryRun: false, reason: reason.trim() || undefined, key });
      void queries.invalidateQueries({ type: "active" });
      onDone?.(answer);
      onClose();
    } catch (failed) {
      setError(failed as Error);
      setBusy(false);
    }
  };

  // A dry run that is refused says what the request itself would say.
  const refused = foreseen.error instanceof ApiError;
  return (
    <Modal opened onClose={onClose} title={title} centered size="md" closeButtonProps={{ "aria-label": "Close" }}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void act();
        }}
      >
        {children}
        <div aria-live="polite" className="act-effect">
          {foreseen.error ? (
            <Failed error={foreseen.error} />
          ) : foreseen.answer === undefined ? (
            <p className="muted">asking what would come of it …</p>
          ) : (
            effect?.(foreseen.answer)
          )}
        </div>
        {typed && (
          <label className="stack">
            <span>
              Type <code>{typed}</code> to confirm
            </span>
            <input className="field" value={word} onChange={(event) => setWord(event.target.value)} autoComplete="off" />
          </label>
        )}
        {!withoutReason && (
          <label className="stack" htmlFor={field}>
            Reason, for the audit
            <input
              id={field}
              className="field"
              value={reason}
              maxLength={500}
              data-autofocus
              onChange={(event) => setReason(event.target.value)}
              placeholder="optional"
            />
          </label>
        )}
        {error && <Failed error={error} />}
        <div className="row">
          <span className="space" />
          <button type="button" className="button" onClick={onClose}>
            Keep as it is
          </button>
          <button
            type="submit"
            className={`button ${danger ? "danger" : "primary"}`}
            disabled={busy || refused || (typed !== undefined && word !== typed)}
          >
            {label}
          </button>
        </div>
      </form>
    </Modal>
  );
}
