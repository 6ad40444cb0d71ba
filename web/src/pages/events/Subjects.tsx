// Who did something and to what, as links.

import { Link } from "@tanstack/react-router";
import type { EventRecord } from "../../api/client";
import { JobLink, Middle, NodeLink, PlanLink } from "../../parts/Name";

/** What an event names. */
export function Subjects({ event }: { event: EventRecord }) {
  return (
    <span className="events-subjects">
      {event.job_id && <JobLink id={event.job_id} name={event.job_name ?? null} />}
      {event.node_id && <NodeLink node={event.node_id} name={event.node_name ?? event.node_id.slice(-8)} />}
      {event.plan_id && <PlanLink id={event.plan_id} />}
    </span>
  );
}

/** Leads to what else this actor did; a node to itself, by name where the event is about it. */
export function Actor({ actor, event }: { actor: string; event?: EventRecord }) {
  if (actor.startsWith("node:")) {
    const id = actor.slice("node:".length);
    const name = event?.node_id === id ? event.node_name : undefined;
    return <NodeLink node={id} name={name ?? `node ${id.slice(-8)}`} />;
  }
  const name = actor.startsWith("user:") ? actor.slice("user:".length) : actor;
  return (
    <Link from="/events" to="/events" search={(before) => ({ ...before, actor })} className="named" title={`only what ${name} did`}>
      <Middle text={name} />
    </Link>
  );
}

/** A subject as the audit tells it: "job:ID", "project:NAME", "policy". */
export function AuditSubject({ subject }: { subject: string }) {
  const colon = subject.indexOf(":");
  const [kind, name] = colon < 0 ? [subject, ""] : [subject.slice(0, colon), subject.slice(colon + 1)];
  switch (kind) {
    case "job":
      return <JobLink id={name} />;
    case "node":
      return <NodeLink node={name} name={`node ${name.slice(-8)}`} />;
    case "reservation":
      return (
        <Link to="/reservations" search={{ reservation: name }} className="named" title={`reservation ${name}`}>
          reservation <span className="mono">{name.slice(-8)}</span>
        </Link>
      );
    case "plan":
      return <PlanLink id={name} />;
  }
  const tab = TABS[kind];
  if (!tab) return <Middle text={subject} />;
  return (
    <Link to="/settings" search={{ tab }} className="named">
      <Middle text={name ? `${kind} ${name}` : kind} />
    </Link>
  );
}

/** Where settings show what has no page of its own. */
const TABS: Record<string, "policy" | "projects" | "people" | "tokens" | "nodes"> = {
  policy: "policy",
  project: "projects",
  user: "people",
  token: "tokens",
  session: "tokens",
  join_token: "nodes",
  authority: "nodes",
};
