// What operators do with a node. Each says first what would come of it: which jobs move, what that costs, what goodput makes of it.

import { useNavigate } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import { type Node, api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";
import { Act, type Doing } from "../../parts/Act";
import { CopyAs } from "../../parts/CopyAs";
import { commandOf, word } from "../../lib/commands";
import { type NodeStanding, nodeShown } from "../../parts/NodeState";
import { CreateReservation } from "../reservations/CreateReservation";
import { Deleted, Foreseen } from "./Foreseen";

type Schemas = components["schemas"];
type Foretold = { foreseen?: Schemas["Foreseen"] | null };
type Switch = "cordon" | "uncordon" | "drain" | "undrain" | "lost";

/** A node as the actions need it. */
export interface Acted extends NodeStanding {
  id: string;
  name: string;
}

async function change(to: Switch, node: string, { dryRun, reason, key }: Doing, more: Partial<Schemas["DrainRequest"]> = {}) {
  // All five take the same, a drain its deadline as well.
  const init = { params: { path: { node }, query: { dry_run: dryRun }, header: { "Idempotency-Key": key } }, body: { reason, ...more } };
  return (await unwrap(api.POST(`/api/v1/nodes/{node}/${to}`, init as never))) as Node & Foretold;
}

/** Those that make sense for the node as it is. */
export function NodeActions({ node }: { node: Acted }) {
  const away = node.availability === "unreachable" || node.availability === "lost";
  const draining = node.policy === "draining";
  const back = node.policy === "cordoned" || (!draining && node.standing !== "good");
  return (
    <div className="row" role="group" aria-label={`Actions on ${node.name}`} data-testid="node-actions">
      {back && <Uncordon node={node} />}
      {draining && <Undrain node={node} />}
      {node.policy === "schedulable" && <Cordon node={node} />}
      {!draining && <Drain node={node} />}
      <CreateReservation label="Reserve" nodes={[node.name]} />
      {node.availability === "unreachable" && <Lost node={node} />}
      {away && <Delete node={node} />}
    </div>
  );
}

function Cordon({ node }: { node: Acted }) {
  const request = useCallback((doing: Doing) => change("cordon", node.id, doing), [node.id]);
  return (
    <Act
      label="Cordon"
      title={`Start nothing new on ${node.name}`}
      role="operator"
      request={request}
      effect={({ gpus, foreseen }) => {
        const held = gpus.filter((gpu) => gpu.job_id).length;
        return (
          <Foreseen foreseen={foreseen}>
            Nothing new starts here. {held > 0 ? `What runs on ${held} of its ${gpus.length} GPUs goes on.` : "Nothing runs here now."}
          </Foreseen>
        );
      }}
    >
      <CopyAs command={`headway node cordon ${word(node.name)}`} />
    </Act>
  );
}

function Uncordon({ node }: { node: Acted }) {
  const request = useCallback((doing: Doing) => change("uncordon", node.id, doing), [node.id]);
  return (
    <Act
      label={node.policy === "cordoned" ? "Uncordon" : "Trust again"}
      title={`Take ${node.name} back into service`}
      role="operator"
      request={request}
      effect={({ foreseen }) => (
        <Foreseen foreseen={foreseen}>
          New work starts here again. You vouch for the node: what was held against it is forgotten, and its health score is 1.
        </Foreseen>
      )}
    >
      <CopyAs command={`headway node uncordon ${word(node.name)}`} />
    </Act>
  );
}

function Undrain({ node }: { node: Acted }) {
  const request = useCallback((doing: Doing) => change("undrain", node.id, doing), [node.id]);
  return (
    <Act
      label="Undrain"
      title={`End the drain of ${node.name}`}
      role="operator"
      request={request}
      effect={({ foreseen }) => <Foreseen foreseen={foreseen}>New work starts here again; who has not left yet may stay.</Foreseen>}
    >
      <CopyAs command={`headway node undrain ${word(node.name)}`} />
    </Act>
  );
}

const DEADLINES = [
  ["", "everybody leaves at once"],
  ["900", "who has nowhere else to go may stay 15 minutes"],
  ["3600", "who has nowhere else to go may stay 1 hour"],
  ["14400", "who has nowhere else to go may stay 4 hours"],
  ["86400", "who has nowhere else to go may stay 1 day"],
] as const;

function Drain({ node }: { node: Acted }) {
  const [within, setWithin] = useState("");
  const request = useCallback(
    (doing: Doing) => change("drain", node.id, doing, within === "" ? {} : { within_seconds: Number(within) }),
    [node.id, within],
  );
  return (
    <Act
      label="Drain"
      title={`Empty ${node.name}`}
      role="operator"
      danger
      request={request}
      effect={({ foreseen }) => <Foreseen foreseen={foreseen}>Its jobs save and leave, and nothing new starts here.</Foreseen>}
    >
      <label className="stack">
        How soon
        <select className="field" value={within} onChange={(event) => setWithin(event.target.value)}>
          {DEADLINES.map(([seconds, words]) => (
            <option key={seconds} value={seconds}>
              {words}
            </option>
          ))}
        </select>
      </label>
      <CopyAs command={commandOf(`headway node drain ${word(node.name)}`, { within: within === "" ? undefined : `${Number(within) / 60}m` })} />
    </Act>
  );
}

function Lost({ node }: { node: Acted }) {
  const request = useCallback((doing: Doing) => change("lost", node.id, doing), [node.id]);
  return (
    <Act
      label="Declare lost"
      title={`Vouch that nothing runs on ${node.name} any more`}
      role="operator"
      danger
      typed={node.name}
      request={request}
      effect={({ foreseen }) => (
        <Foreseen foreseen={foreseen}>
          Its jobs go on elsewhere from their checkpoints. If any of their processes still run, two of the same may write to the same place: look, or switch the
          machine off, before you vouch.
        </Foreseen>
      )}
    >
      <CopyAs command={`headway node lost ${word(node.name)}`} />
    </Act>
  );
}

function Delete({ node }: { node: Acted }) {
  const navigate = useNavigate();
  const request = useCallback(
    async ({ dryRun, reason }: Doing) => {
      const query = { dry_run: dryRun, ...(reason === undefined ? {} : { reason }) };
      return (await unwrap(api.DELETE("/api/v1/nodes/{node}", { params: { path: { node: node.id }, query } }))) as Schemas["DeletedNode"] & Foretold;
    },
    [node.id],
  );
  return (
    <Act
      label="Delete"
      title={`Forget ${node.name}, which is ${nodeShown(node).word}`}
      role="operator"
      danger
      typed={node.name}
      request={request}
      onDone={() => void navigate({ to: "/cluster", search: { as: "table" } })}
      effect={(answer) => (
        <>
          <Foreseen foreseen={answer.foreseen}>
            Its certificate opens nothing any more; an agent that comes back joins as a new node. Its events are kept.
          </Foreseen>
          <Deleted of={answer} />
        </>
      )}
    >
      <CopyAs command={`headway node delete ${word(node.name)}`} />
    </Act>
  );
}
