// One reservation: when it holds, which jobs may use its nodes, and what it does to the others.

import { Link } from "@tanstack/react-router";
import { useNow } from "../../lib/clock";
import { count, duration } from "../../lib/format";
import { type Reservation, effectOn, phaseOf } from "../../lib/reservation";
import { CopyAs } from "../../parts/CopyAs";
import { Middle, NodeLink } from "../../parts/Name";
import { Box, Close } from "../../parts/Panel";
import { ReservationMembers, ReservationPhase } from "../../parts/Reservation";
import { Ago, Until } from "../../parts/Time";
import { When } from "../../parts/When";
import { CancelReservation } from "./CancelReservation";
import { ReservationCost } from "./ReservationCost";

/** Nodes that are shown at first; the map shows all. */
const NODES_SHOWN = 40;

export function ReservationDetail({ reservation, onClose }: { reservation: Reservation; onClose: () => void }) {
  const { id, name, nodes, from, until } = reservation;
  const now = useNow();
  const active = phaseOf(reservation, now) === "active";
  return (
    <Box title="Reservation" id="reservation" tools={<Close onClose={onClose} />}>
      <div className="stack">
        <div className="row">
          <h3 className="reservation-name">
            <Middle text={name} />
          </h3>
          <ReservationPhase reservation={reservation} />
        </div>
        <p data-testid="reservation-rule">{effectOn(reservation, now)}</p>
        <dl className="facts">
          <dt>From</dt>
          <dd>
            <When at={from} />
            {!active && (
              <span className="muted">
                , begins <Until at={from} />
              </span>
            )}
          </dd>
          <dt>Until</dt>
          <dd>
            <When at={until} />
            <span className="muted">
              , {active && <>ends <Until at={until} />, </>}
              lasts {duration((Date.parse(until) - Date.parse(from)) / 1_000)}
            </span>
          </dd>
          <dt>For</dt>
          <dd>
            <ReservationMembers reservation={reservation} />
          </dd>
          {reservation.reason && (
            <>
              <dt>Reason</dt>
              <dd>{reservation.reason}</dd>
            </>
          )}
          <dt>Made</dt>
          <dd>
            by {reservation.made_by} <Ago at={reservation.made_at} />
          </dd>
          <dt>Nodes</dt>
          <dd>
            <Link to="/cluster" search={{ reservation: id }} className="named">
              {count(nodes.length)} {nodes.length === 1 ? "node" : "nodes"} in Cluster
            </Link>
            <ul className="reservation-node-list" aria-label="Reserved nodes">
              {nodes.slice(0, NODES_SHOWN).map((node) => (
                <li key={node}>
                  <NodeLink node={node} />
                </li>
              ))}
              {nodes.length > NODES_SHOWN && <li className="muted">and {count(nodes.length - NODES_SHOWN)} more</li>}
            </ul>
          </dd>
        </dl>
        {reservation.cost && <ReservationCost cost={reservation.cost} />}
        <div className="row">
          <CancelReservation reservation={reservation} active={active} onDone={onClose} />
          <CopyAs command="headway reservation list" path={`/api/v1/reservations/${id}`} />
        </div>
      </div>
    </Box>
  );
}
