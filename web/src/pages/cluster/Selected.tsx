// The node that is selected on the map: what its GPUs do, and what can be done with it.

import { useEffect, useRef } from "react";
import { Activity } from "../../parts/Activity";
import { JobLink, NodeLink } from "../../parts/Name";
import type { ReservationsByNode } from "../../lib/reservation";
import { NodeState } from "../../parts/NodeState";
import { Box, Close } from "../../parts/Panel";
import { ReservationBadge } from "../../parts/Reservation";
import { NodeActions } from "../node/NodeActions";
import { withUnit } from "../node/amounts";
import { useNodeGpus } from "../node/queries";
import { ACTIVITIES, type Fleet, type FleetNode, countsOf } from "./fleet";
import { gpus } from "./words";

interface Props {
  fleet: Fleet;
  /** Its place among the nodes. */
  place: number;
  reservations: ReservationsByNode;
  past: boolean;
  onClose: () => void;
}

export function Selected({ fleet, place, reservations, past, onClose }: Props) {
  const node = fleet.nodes[place]!;
  const { busy, free } = countsOf(fleet, place);
  return (
    <Box title="Selected node" id="cluster-selected" tools={<Close onClose={onClose} />}>
      <div className="stack">
        <div className="row">
          <strong className="cluster-selected-name">
            <NodeLink node={node.id} name={node.name} />
          </strong>
          <NodeState node={node} />
        </div>
        {reservations.get(node.name)?.map((one) => (
          <ReservationBadge key={one.id} reservations={[one]} />
        ))}
        <p className="muted">
          {gpus(node.gpus)} of type {node.type} in domain {fleet.domains[node.domain]!.name}; {busy} held, {free} free to start on
        </p>
        {past ? <Cells fleet={fleet} node={node} /> : <Now key={node.id} fleet={fleet} node={node} />}
      </div>
    </Box>
  );
}

/** With what is measured of it, and with the actions. */
function Now({ fleet, node }: { fleet: Fleet; node: FleetNode }) {
  const { data, error } = useNodeGpus(node.id);
  return (
    <>
      <Cells fleet={fleet} node={node} measured={data?.gpus} />
      {error && <p className="warn">What its GPUs measure is not known: {error.message}</p>}
      <NodeActions node={node} />
    </>
  );
}

interface CellsProps {
  fleet: Fleet;
  node: FleetNode;
  measured?: { utilisation_pct?: number | null; temperature_celsius?: number | null }[] | undefined;
}

function Cells({ fleet, node, measured }: CellsProps) {
  const table = useRef<HTMLDivElement>(null);
  // Another node is looked at from its first GPU on.
  useEffect(() => {
    // Without braces the effect would return what `scrollTo` returns: a promise in newer browsers, which React takes for a clean-up.
    table.current?.scrollTo(0, 0);
  }, [node.id]);
  if (node.gpus === 0) return <p className="muted">Its agent tells of no GPUs.</p>;
  return (
    <div className="cluster-cells" ref={table} role="region" aria-label={`GPUs of ${node.name}`} tabIndex={0}>
      <table className="data">
        <thead>
          <tr>
            <th scope="col" className="cluster-narrow number">
              GPU
            </th>
            <th scope="col">Does</th>
            <th scope="col">Job</th>
            {measured && (
              <>
                <th scope="col" className="cluster-narrow number" title="share of the ten seconds before in which some kernel ran">
                  Busy
                </th>
                <th scope="col" className="cluster-narrow number">
                  Heat
                </th>
              </>
            )}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: node.gpus }, (_, at) => {
            const cell = node.first + at;
            const job = fleet.jobs[fleet.job[cell]!];
            return (
              <tr key={at}>
                <td className="number">{fleet.index[cell]}</td>
                <td>
                  <Activity activity={ACTIVITIES[fleet.activity[cell]!]!} />
                </td>
                <td>{job && <JobLink id={job.id} name={job.name} />}</td>
                {measured && (
                  <>
                    <td className="number">{withUnit(measured[at]?.utilisation_pct, "%")}</td>
                    <td className="number">{withUnit(measured[at]?.temperature_celsius, "°C")}</td>
                  </>
                )}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
