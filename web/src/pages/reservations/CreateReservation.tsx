// The action that reserves nodes. Its dry run shows the cost: GPU-hours, and the jobs that have to leave.

import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "../../api/client";
import type { Reservation } from "../../lib/reservation";
import type { Doing } from "../../parts/Act";
import { CopyAs } from "../../parts/CopyAs";
import { When } from "../../parts/When";
import { useRequest } from "../settings/asked";
import { Deed } from "../settings/Deed";
import { ReservationCost } from "./ReservationCost";
import { type ReservationForm, UNITS, commandOf, emptyForm, lackingIn, namesIn, requestOf } from "./form";
import "./reservations.css";

interface Props {
  label: string;
  /** Nodes that the form begins with. */
  nodes: readonly string[];
}

export function CreateReservation({ label, nodes }: Props) {
  const [form, setForm] = useState(() => emptyForm(nodes));
  const navigate = useNavigate();
  const set = (change: Partial<ReservationForm>) => setForm({ ...form, ...change });
  const request = useRequest(form, async (typed, { dryRun, key, reason }: Doing): Promise<Reservation | null> => {
    if (dryRun && lackingIn(typed)) return null;
    const params = { query: { dry_run: dryRun }, header: { "Idempotency-Key": key } };
    return unwrap(api.POST("/api/v1/reservations", { params, body: { ...requestOf(typed), reason: reason ?? null } }));
  });
  return (
    <Deed
      label={label}
      title="Reserve nodes"
      role="operator"
      request={request}
      effect={(answer) => (answer ? <Effect of={answer} /> : <p className="muted">{lackingIn(form) ?? "The effect is being worked out …"}</p>)}
      onDone={(made) => {
        setForm(emptyForm(nodes));
        if (made) void navigate({ to: "/reservations", search: { reservation: made.name } });
      }}
    >
      <Fields form={form} set={set} />
      <CopyAs command={commandOf(form)} />
    </Deed>
  );
}

function Fields({ form, set }: { form: ReservationForm; set: (change: Partial<ReservationForm>) => void }) {
  const nodes = namesIn(form.nodes).length;
  return (
    <>
      <label className="act-field">
        <span>Name</span>
        <input className="field" value={form.name} maxLength={128} required placeholder="psu-swap" data-autofocus onChange={(event) => set({ name: event.target.value })} />
      </label>
      <label className="act-field">
        <span>Nodes</span>
        <textarea
          className="field"
          rows={2}
          value={form.nodes}
          required
          spellCheck={false}
          placeholder="node-7 node-8"
          onChange={(event) => set({ nodes: event.target.value })}
        />
        <span className="muted">
          {nodes} {nodes === 1 ? "node" : "nodes"}; names or ids, with spaces or commas between them
        </span>
      </label>
      <label className="act-field">
        <span>Begins</span>
        <input className="field" type="datetime-local" value={form.from} onChange={(event) => set({ from: event.target.value })} />
        <span className="muted">{form.from === "" ? "now" : `time zone ${Intl.DateTimeFormat().resolvedOptions().timeZone}`}</span>
      </label>
      <div className="act-field">
        <span id="reservation-lasts">Lasts</span>
        <span className="row">
          <input
            className="field reservation-amount"
            type="number"
            min={0}
            step="any"
            required
            aria-labelledby="reservation-lasts"
            value={form.amount}
            onChange={(event) => set({ amount: event.target.value })}
          />
          <select className="field" aria-label="Unit of the duration" value={form.unit} onChange={(event) => set({ unit: Number(event.target.value) })}>
            {UNITS.map(({ seconds, word }) => (
              <option key={seconds} value={seconds}>
                {word}
              </option>
            ))}
          </select>
        </span>
      </div>
      <label className="act-field">
        <span>For</span>
        <select className="field" value={form.maintenance ? "maintenance" : "members"} onChange={(event) => set({ maintenance: event.target.value === "maintenance" })}>
          <option value="maintenance">maintenance: no job runs on the nodes</option>
          <option value="members">members: only their jobs run on the nodes</option>
        </select>
      </label>
      {!form.maintenance &&
        (["projects", "users", "jobs"] as const).map((kind) => (
          <label key={kind} className="act-field">
            <span>{MEMBERS[kind]}</span>
            <input className="field" value={form[kind]} spellCheck={false} onChange={(event) => set({ [kind]: event.target.value })} />
          </label>
        ))}
    </>
  );
}

const MEMBERS = { projects: "Projects", users: "Users", jobs: "Ids of jobs" } as const;

function Effect({ of }: { of: Reservation }) {
  return (
    <div className="stack" data-testid="reservation-effect">
      <p>
        {of.name} reserves {of.nodes.length} {of.nodes.length === 1 ? "node" : "nodes"} from <When at={of.from} /> to <When at={of.until} />.
      </p>
      {of.cost && <ReservationCost cost={of.cost} />}
    </div>
  );
}
