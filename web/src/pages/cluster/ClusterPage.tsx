// The cluster: every GPU at a glance, as a map or as a table of its nodes, and what is free in how large blocks.

import { useMediaQuery } from "@mantine/hooks";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { useReservationIndex } from "../../api/reservations";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { commandOf, queryOf } from "../../lib/commands";
import type { ReservationIndex } from "../../lib/reservation";
import { type Asked, Empty, Failed, Loading, Panel } from "../../parts/Panel";
import { Filters } from "./Filters";
import { FreeBlocks } from "./FreeBlocks";
import { MapView } from "./MapView";
import { NodeTable } from "./NodeTable";
import { ReservedNodes } from "./ReservedNodes";
import { fit } from "./filter";
import type { Fleet } from "./fleet";
import { everySeconds, useFleet, useRoom } from "./queries";
import { type Change, type ClusterSearch, useClusterSearch } from "./search";
import "./cluster.css";

/** Narrower windows have the list, as the shell's style has it. */
const NARROW = "(max-width: 760px)";

export default function ClusterPage() {
  const [search, change] = useClusterSearch();
  const asked = useFleet(search.at);
  const { data } = asked;
  return (
    <div data-testid="page-cluster">
      <header className="page-head">
        <h1>Cluster</h1>
        {data && data.nodes.length > 0 && <Held fleet={data} past={search.at !== undefined} />}
        <span className="space" />
        <CopyAs command={commandOf("headway node list", { at: search.at })} path={search.at ? `/api/v1/nodes${queryOf({ at: search.at })}` : "/api/v1/topology"} />
      </header>
      {!data ? (
        asked.error ? (
          <Failed error={asked.error} asked={asked} />
        ) : (
          <Loading height={520} />
        )
      ) : data.nodes.length === 0 ? (
        <NoNodes past={search.at !== undefined} />
      ) : (
        <Shown asked={asked} fleet={data} search={search} change={change} />
      )}
    </div>
  );
}

function Held({ fleet, past }: { fleet: Fleet; past: boolean }) {
  const held = fleet.job.reduce((sum, job) => sum + (job >= 0 ? 1 : 0), 0);
  const serving = fleet.nodes.filter((node) => node.health === "well" || node.health === "broken").length;
  return (
    <span className="muted">
      {count(held)} of {count(fleet.job.length)} GPUs {past ? "were held" : "held"} · {count(serving)} of {count(fleet.nodes.length)} nodes in service
    </span>
  );
}

function NoNodes({ past }: { past: boolean }) {
  if (past) return <Empty>No node had joined by then.</Empty>;
  return (
    <Empty>
      No node has joined yet. Make a join token under <Link to="/settings" search={{ tab: "nodes" }}>Settings, Nodes</Link> or with{" "}
      <code>headway node token create</code>, and use it on a node: <code>headway node join</code>.
    </Empty>
  );
}

interface ShownProps {
  asked: Asked<Fleet>;
  fleet: Fleet;
  search: ClusterSearch & { at?: string | undefined };
  change: Change;
}

function Shown({ asked, fleet, search, change }: ShownProps) {
  const { q, type, job, health, reservation, at } = search;
  const reservations = useReservationIndex(at);
  // The reservations of a past moment are not known, so that none can filter.
  const among = useMemo(() => (at || !reservation ? undefined : nodesAmong(reservations, reservation)), [at, reservations, reservation]);
  const admitted = useMemo(() => fit(fleet, { q, type, job, health, among }), [fleet, q, type, job, health, among]);
  const narrow = useMediaQuery(NARROW, undefined, { getInitialValueInEffect: false });
  const table = narrow || search.as === "table";
  const room = useRoom();
  const navigate = useNavigate();
  return (
    <>
      <div className="row cluster-head">
        <Filters fleet={fleet} fit={admitted} search={search} reservations={reservations.all} change={change} />
        <span className="space" />
        {!narrow && (
          <span className="row" role="group" aria-label="Shown as">
            {(["map", "table"] as const).map((as) => (
              <button key={as} className="button cluster-way" aria-pressed={table === (as === "table")} onClick={() => change({ as })}>
                {as}
              </button>
            ))}
          </span>
        )}
      </div>
      <div className="cluster-grid">
        {table ? (
          <Panel title="Nodes" id="cluster-nodes" className="cluster-whole" asked={asked} everySeconds={everySeconds(fleet)}>
            {() => (
              <>
                <NodeTable
                  fleet={fleet}
                  fit={admitted}
                  reservations={reservations.byNode}
                  sort={search.sort}
                  onSort={(sort) => change({ sort })}
                  onOpen={(node) => void navigate({ to: "/nodes/$node", params: { node }, search: (before) => ({ at: before.at }) })}
                  selected={search.node}
                />
                <ReservedNodes reservations={reservations.all} />
              </>
            )}
          </Panel>
        ) : (
          <MapView asked={asked} fleet={fleet} fit={admitted} search={search} change={change} reservations={reservations} />
        )}
        {at ? (
          <p className="muted cluster-whole">
            Where nodes stand is as of now, and who held what as of then. Why GPUs were idle, which ones were broken, and what was free for jobs is not kept.
          </p>
        ) : (
          <FreeBlocks fleet={fleet} asked={room} className="cluster-whole" />
        )}
      </div>
    </>
  );
}

/** Returns the names of the nodes that a filter leaves: a phase, or the id of a reservation. */
function nodesAmong({ all, nodesIn }: ReservationIndex, filter: string): ReadonlySet<string> {
  if (filter === "active" || filter === "upcoming") return nodesIn[filter];
  return new Set(all.find((one) => one.id === filter)?.nodes);
}
