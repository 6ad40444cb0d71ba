// How a node came to be what it is: incidents, and its states over the last 30 days.

import { Link } from "@tanstack/react-router";
import type { components } from "../../api/schema";
import { duration } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { Middle } from "../../parts/Name";
import { NodeState } from "../../parts/NodeState";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";
import { When } from "../../parts/When";

type Health = components["schemas"]["NodeHealth"];
type Incident = components["schemas"]["NodeIncident"];
type Entered = components["schemas"]["NodeState"] & { until: string | undefined };

const INCIDENTS: Column<Incident>[] = [
  { id: "at", header: "When", cell: (incident) => <When at={incident.at} />, width: "128px" },
  {
    id: "what",
    header: "What",
    cell: ({ seq, message }) => (
      <Link to="/events" search={{ event: String(seq) }} className="named" title={message}>
        <Middle text={message} />
      </Link>
    ),
  },
  { id: "xid", header: "XID", cell: (incident) => incident.xid ?? "–", width: "56px", number: true, hint: "The driver's error number, where that was the cause" },
];

const STATES: Column<Entered>[] = [
  { id: "since", header: "Since", cell: (state) => <When at={state.since} />, width: "128px" },
  { id: "state", header: "Was", cell: (state) => <NodeState node={state} title={`${state.availability}, ${state.policy}, ${state.standing}`} /> },
  {
    id: "for",
    header: "For",
    cell: ({ since, until }) => (until ? duration((Date.parse(until) - Date.parse(since)) / 1_000) : <Ago at={since} suffix="" />),
    width: "84px",
    number: true,
    from: "tablet",
  },
  {
    id: "gpus",
    header: "Healthy",
    hint: "GPUs, of all it has",
    cell: ({ gpus, gpus_healthy: healthy }) => <span className={healthy < gpus ? "bad" : undefined}>{`${healthy} of ${gpus}`}</span>,
    width: "72px",
    number: true,
  },
];

/** The most of both that the API gives. */
const MOST = 100;

export function Incidents({ asked, className }: { asked: Asked<Health>; className: string }) {
  const found = asked.data?.incidents.length ?? 0;
  return (
    <Panel
      title="Incidents"
      id="node-incidents"
      className={className}
      note={asked.data && (found < MOST ? `all ${found}` : `the newest ${MOST}`)}
      asked={asked}
      everySeconds={10}
    >
      {({ incidents }) =>
        incidents.length === 0 ? (
          <Empty>Nothing has befallen it, as far as the log is kept.</Empty>
        ) : (
          <DataTable label="Incidents of the node" rows={incidents} columns={INCIDENTS} keyOf={(one) => String(one.seq)} height={240} testId="node-incident-table" />
        )
      }
    </Panel>
  );
}

export function History({ asked, className }: { asked: Asked<Health>; className: string }) {
  return (
    <Panel title="States" id="node-history" className={className} note="the last 30 days, the newest first" asked={asked} everySeconds={10}>
      {({ history }) =>
        history.length === 0 ? (
          <Empty>No state of it is kept.</Empty>
        ) : (
          <DataTable
            label="States of the node"
            rows={history.map((state, at) => ({ ...state, until: history[at - 1]?.since }))}
            columns={STATES}
            keyOf={(state) => state.since}
            height={240}
            testId="node-state-table"
          />
        )
      }
    </Panel>
  );
}
