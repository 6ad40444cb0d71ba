// The policy: each setting with what it does. Changes are gathered and made as one, of the version that they were made from; what would come
// of them is tried before.

import { useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "../../api/client";
import { useCan } from "../../api/session";
import { CopyAs } from "../../parts/CopyAs";
import { Box, Panel } from "../../parts/Panel";
import { type Policy, SETTINGS_SECONDS, asked, usePolicy, useRequest } from "./asked";
import { Deed } from "./Deed";
import { PolicyField } from "./PolicyField";
import { RowsForeseen, SiteRows } from "./SiteRows";
import { UserQuotas } from "./UserQuotas";
import { SECTIONS, type Value, nameOf, same, shown } from "./policyFields";

/** What somebody is about to change, and the policy that it was made from. */
interface Draft {
  from: Policy;
  etag: string;
  values: Partial<Record<keyof Policy, unknown>>;
  /** Fields whose text is no value. */
  wrong: readonly string[];
}

export function PolicyTab() {
  const policy = usePolicy();
  const { at } = useSearch({ from: "__root__" });
  const may = useCan("operator") && !at;
  const [draft, setDraft] = useState<Draft>();
  // Fields are made anew when a draft is dropped or done.
  const [round, setRound] = useState(0);
  const drop = () => {
    setDraft(undefined);
    setRound(round + 1);
  };
  return (
    <Panel
      title="Policy"
      id="policy"
      note="what the planner goes by"
      asked={policy}
      everySeconds={SETTINGS_SECONDS}
      height={480}
      tools={<CopyAs command="headway policy get" path="/api/v1/policy" />}
    >
      {({ policy: now, etag }) => {
        const set = (key: keyof Policy, value: unknown, wrong?: string) =>
          setDraft((before) => {
            const base = before ?? { from: now, etag, values: {}, wrong: [] };
            const { [key]: _, ...others } = base.values;
            const values = wrong || same(value, now[key]) ? others : { ...others, [key]: value };
            const bad = base.wrong.filter((one) => one !== key);
            const next = { ...base, values, wrong: wrong ? [...bad, key] : bad };
            return Object.keys(values).length === 0 && next.wrong.length === 0 ? undefined : next;
          });
        const value = (key: keyof Policy) => (draft && key in draft.values ? draft.values[key] : now[key]);
        return (
          <div className="stack">
            {!may && <p className="muted">{at ? "This is the policy of the present: what it was is not kept." : "Operators and admins change it; you may read it."}</p>}
            {draft && <Pending draft={draft} now={now} etag={etag} onRebase={() => setDraft({ ...draft, from: now, etag })} onDrop={drop} />}
            <div className="settings-sections" key={round}>
              {SECTIONS.map(({ title, fields }) => (
                <fieldset key={title} className="settings-section" disabled={!may}>
                  <legend>{title}</legend>
                  {fields.map((field) => (
                    // Made anew where somebody else has changed it.
                    <PolicyField
                      key={field.key + JSON.stringify(now[field.key])}
                      field={field}
                      value={value(field.key) as Value}
                      changed={draft !== undefined && field.key in draft.values}
                      onSet={(next, wrong) => set(field.key, next, wrong)}
                    />
                  ))}
                </fieldset>
              ))}
              <UserQuotas key={JSON.stringify(now.user_quota)} everybody={now.user_quota} own={now.user_quotas} disabled={!may} onSet={(next, wrong) => set("user_quota", next, wrong)} />
            </div>
            <Box title="Site rules" id="site-rules" note="of the GPUs that a rule names, jobs hold at most so many together">
              <SiteRows key={round} rows={(value("rows") as Policy["rows"]) ?? []} onSet={may ? (rows) => set("rows", rows) : undefined} />
            </Box>
          </div>
        );
      }}
    </Panel>
  );
}

interface PendingProps {
  draft: Draft;
  now: Policy;
  etag: string;
  onRebase: () => void;
  onDrop: () => void;
}

/** What is about to change, and whether somebody else has changed the policy meanwhile. */
function Pending({ draft, now, etag, onRebase, onDrop }: PendingProps) {
  const changed = Object.keys(draft.values);
  const others = (Object.keys(now) as (keyof Policy)[]).filter((key) => !same(now[key], draft.from[key]));
  const stale = draft.etag !== etag;
  const request = useRequest({ values: draft.values, etag: draft.etag }, ({ values, etag: version }, doing) =>
    unwrap(api.PATCH("/api/v1/policy", { params: { query: asked(doing), header: { "If-Match": version } }, body: values as never })),
  );
  const wrong = draft.wrong.length > 0 ? `cannot be read: ${draft.wrong.map(nameOf).join(", ")}` : undefined;
  return (
    <section className="settings-pending" aria-label="Changes that are not made yet" data-testid="policy-pending">
      <ul>
        {changed.map((key) => (
          <li key={key}>
            <strong>{nameOf(key)}</strong>: {shown(key, draft.from[key as keyof Policy])} → {shown(key, draft.values[key as keyof Policy])}
          </li>
        ))}
        {wrong && <li className="bad">✕ {wrong}</li>}
      </ul>
      {stale && (
        <p className="warn" role="alert">
          ▲ Somebody has changed the policy since: {others.length > 0 ? others.map((key) => `${nameOf(key)} is ${shown(key, now[key])}`).join(", ") : "to what it is again"}.{" "}
          <button className="link" onClick={onRebase}>
            Make my changes to this one
          </button>
        </p>
      )}
      <div className="row">
        <Deed
          label={changed.length === 1 ? "Change it" : `Change these ${changed.length}`}
          title="Change the policy"
          role="operator"
          disabled={wrong ?? (changed.length === 0 ? "nothing has changed" : stale ? "somebody has changed the policy since" : undefined)}
          request={request}
          effect={(answer) => <Tried draft={draft} answer={answer} />}
          onDone={onDrop}
        />
        <button className="button" onClick={onDrop}>
          Leave it as it is
        </button>
      </div>
    </section>
  );
}

/** What the server made of it. */
function Tried({ draft, answer }: { draft: Draft; answer: Policy }) {
  const differs = (Object.keys(answer) as (keyof Policy)[]).filter((key) => !same(answer[key], draft.from[key]));
  if (differs.length === 0) return <p className="muted">Nothing would change.</p>;
  return (
    <div className="stack">
      <p>From the next round on:</p>
      <ul>
        {differs.map((key) => (
          <li key={key}>
            {nameOf(key)}: {shown(key, draft.from[key])} → <strong>{shown(key, answer[key])}</strong>
          </li>
        ))}
      </ul>
      {draft.values.mode === "paused" && <p className="warn">▲ While planning is paused nothing starts and nothing moves. What runs goes on.</p>}
      {"rows" in draft.values && <RowsForeseen before={draft.from.rows ?? []} after={answer.rows ?? []} />}
    </div>
  );
}
