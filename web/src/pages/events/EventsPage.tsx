// One log of what happened, with the chain of causes that each line stands in; and beside it the audit of what people did.

import { Link, useSearch } from "@tanstack/react-router";
import { OnlyFor } from "../../parts/OnlyFor";
import { Audit } from "./Audit";
import { EventLog } from "./EventLog";
import "./events.css";

const TABS = [
  { tab: "events", name: "Events" },
  { tab: "audit", name: "Audit" },
] as const;

export default function EventsPage() {
  const { tab = "events" } = useSearch({ from: "/events" });
  return (
    <div data-testid="page-events">
      <header className="page-head">
        <h1>Events</h1>
        <span className="muted">
          {tab === "events" ? "what happened, newest first; press a line for what led to it and what came of it" : "what people did and what was refused, newest first"}
        </span>
      </header>
      <nav className="tabs" aria-label="Logs">
        {TABS.map((one) => (
          <Link
            key={one.tab}
            to="/events"
            // What a line or a kind of line is called differs between the two; who and what it is about does not.
            search={(before) => ({ at: before.at, actor: before.actor, job: before.job, node: before.node, tab: one.tab === "events" ? undefined : one.tab })}
            // A tab that stands for none in the address would be that of every address.
            activeOptions={{ explicitUndefined: true }}
            aria-current={tab === one.tab ? "page" : undefined}
          >
            {one.name}
          </Link>
        ))}
      </nav>
      {tab === "events" ? (
        <EventLog />
      ) : (
        <OnlyFor role="operator" what="The audit">
          <Audit />
        </OnlyFor>
      )}
    </div>
  );
}
