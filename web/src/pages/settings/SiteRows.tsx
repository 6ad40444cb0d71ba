// The site's own rules, as the policy has them: which GPUs a rule counts, and how many of them jobs hold at most.

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";
import { count } from "../../lib/format";
import { Empty, Failed } from "../../parts/Panel";
import { NodeLink } from "../../parts/Name";
import { Outcome } from "../../parts/Outcome";
import { same } from "./policyFields";

type Schemas = components["schemas"];
type SiteRow = Schemas["SiteRow"];

const PARTS = [
  { key: "project", name: "held by project", example: "nlp" },
  { key: "label", name: "held by jobs with the label", example: "team=x" },
  { key: "gpu_type", name: "of the type", example: "H100-80G" },
  { key: "node", name: "of the node", example: "h100-0001" },
] as const;

export function SiteRows({ rows, onSet }: { rows: readonly SiteRow[]; onSet: ((rows: SiteRow[]) => void) | undefined }) {
  return (
    <div className="stack">
      {rows.length === 0 ? (
        <Empty>The site has no rules of its own.{onSet && " Add one below: it holds in every round, beside quotas and floors."}</Empty>
      ) : (
        <div className="settings-scroll" role="region" aria-label="Site rules" tabIndex={0}>
          <table className="settings-table" data-testid="site-rows">
            <thead>
              <tr>
                <th scope="col">rule</th>
                <th scope="col">counts GPUs</th>
                <th scope="col" className="number">
                  at most
                </th>
                {onSet && <th scope="col" />}
              </tr>
            </thead>
            <tbody>
              {rows.map((row, index) => (
                <tr key={row.name}>
                  <th scope="row">{row.name}</th>
                  <td>
                    <Amount of={row.amount} />
                  </td>
                  <td className="number">
                    {onSet ? (
                      <input
                        className="field settings-short"
                        type="number"
                        min={0}
                        step={1}
                        aria-label={`At most, rule ${row.name}`}
                        defaultValue={row.at_most}
                        onChange={(event) => {
                          const most = Number(event.target.value);
                          if (event.target.value.trim() !== "" && Number.isInteger(most) && most >= 0) onSet(rows.map((one, at) => (at === index ? { ...one, at_most: most } : one)));
                        }}
                      />
                    ) : (
                      `${count(row.at_most)} GPUs`
                    )}
                  </td>
                  {onSet && (
                    <td>
                      <button className="button" aria-label={`Take rule ${row.name} away`} onClick={() => onSet(rows.filter((_, at) => at !== index))}>
                        Take away
                      </button>
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {onSet && <Add taken={rows.map((row) => row.name)} onAdd={(row) => onSet([...rows, row])} />}
    </div>
  );
}

function Amount({ of }: { of: Schemas["Amount"] }) {
  return (
    <span className="row">
      {of.project && (
        <span>
          held by{" "}
          <Link to="/jobs" search={{ project: of.project }}>
            {of.project}
          </Link>
        </span>
      )}
      {of.label && (
        <span>
          of jobs with{" "}
          <Link to="/jobs" search={{ label: of.label }} className="mono">
            {of.label}
          </Link>
        </span>
      )}
      {of.gpu_type && (
        <span>
          of type{" "}
          <Link to="/cluster" search={{ type: of.gpu_type }}>
            {of.gpu_type}
          </Link>
        </span>
      )}
      {of.node && (
        <span>
          on <NodeLink node={of.node} />
        </span>
      )}
    </span>
  );
}

function Add({ taken, onAdd }: { taken: readonly string[]; onAdd: (row: SiteRow) => void }) {
  const [wrong, setWrong] = useState<string>();
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const typed = (name: string) => String(new FormData(form).get(name) ?? "").trim();
    const [name, most] = [typed("name"), typed("at_most")];
    const amount = Object.fromEntries(PARTS.map(({ key }) => [key, typed(key)] as const).filter(([, value]) => value !== ""));
    const why = !name
      ? "a rule has a name"
      : taken.includes(name)
        ? "another rule has this name"
        : Object.keys(amount).length === 0
          ? "a rule names at least one of project, label, type and node"
          : most === "" || !Number.isInteger(Number(most)) || Number(most) < 0
            ? "at most is a whole number of GPUs, 0 for none"
            : undefined;
    setWrong(why);
    if (why) return;
    onAdd({ name, amount, at_most: Number(most) });
    form.reset();
  };
  return (
    <details className="settings-fold">
      <summary>Add a rule</summary>
      <form className="row settings-add" onSubmit={submit}>
        <label className="stack">
          name
          <input className="field" name="name" maxLength={64} />
        </label>
        {PARTS.map(({ key, name, example }) => (
          <label key={key} className="stack">
            {name}
            <input className="field" name={key} placeholder={example} maxLength={200} />
          </label>
        ))}
        <label className="stack">
          at most, GPUs
          <input className="field settings-short" name="at_most" type="number" min={0} step={1} />
        </label>
        <button type="submit" className="button">
          Add
        </button>
        {wrong && (
          <p className="bad" role="alert">
            {wrong}
          </p>
        )}
      </form>
    </details>
  );
}

/** What the newest round would have been with the rules as they would be; of rules that are new nobody can tell before they are there. */
export function RowsForeseen({ before, after }: { before: readonly SiteRow[]; after: readonly SiteRow[] }) {
  const later = new Map(after.map((row) => [row.name, row]));
  const changed = before.filter((row) => !same(row, later.get(row.name)));
  const rows = Object.fromEntries(changed.map((row) => [row.name, later.get(row.name)?.at_most ?? null]));
  const added = after.filter((row) => !before.some((former) => former.name === row.name)).length;
  const foreseen = useQuery({
    queryKey: ["rows-foreseen", rows],
    queryFn: () => unwrap(api.POST("/api/v1/plans/simulate", { body: { rows } as never })),
    enabled: changed.length > 0,
  });
  return (
    <div className="stack">
      {added > 0 && <p className="muted">What a new rule does is told by the plan of the next round: what runs beyond it shrinks, moves or waits.</p>}
      {foreseen.error && <Failed error={foreseen.error} />}
      {foreseen.isLoading && <p className="muted">solving the newest round with these rules …</p>}
      {foreseen.data && <Outcome of={foreseen.data.outcome} />}
    </div>
  );
}
