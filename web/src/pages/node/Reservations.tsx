// Reservations of a node: their members, and what they do to jobs.

import { RESERVATIONS_SECONDS, useReservations } from "../../api/reservations";
import { useNow } from "../../lib/clock";
import { type Reservation, effectOn, membersInWords, phaseOf } from "../../lib/reservation";
import { Empty, Panel } from "../../parts/Panel";
import { NextChange, ReservationLink, ReservationMembers, ReservationPhase, ReservedUntil } from "../../parts/Reservation";
import { When } from "../../parts/When";

interface Props {
  /** Reservations of the node, the next one first. */
  reservations: readonly Reservation[];
}

export function Reservations({ reservations, className }: Props & { className: string }) {
  const asked = useReservations();
  return (
    <Panel title="Reservations" id="node-reservations" className={className} asked={asked} everySeconds={RESERVATIONS_SECONDS} height={80}>
      {() =>
        reservations.length === 0 ? (
          <Empty>No active or upcoming reservation includes this node.</Empty>
        ) : (
          <ul className="node-list">
            {reservations.map((one) => (
              <li key={one.id} className="stack node-reservation">
                <span className="row">
                  <strong className="named">
                    <ReservationLink reservation={one} />
                  </strong>
                  <ReservationPhase reservation={one} />
                </span>
                <span>
                  <When at={one.from} /> – <When at={one.until} />
                  <span className="muted">
                    , <NextChange reservation={one} />
                  </span>
                </span>
                <span className="row">
                  <span className="muted">For</span> <ReservationMembers reservation={one} />
                </span>
                {one.reason && <span>Reason: {one.reason}</span>}
                <span className="muted">Made by {one.made_by}</span>
              </li>
            ))}
          </ul>
        )
      }
    </Panel>
  );
}

/** Under the name of a node: the reservation that is active or comes next, and what it does to jobs. */
export function ReservationNotice({ reservations }: Props) {
  const now = useNow();
  const [next, ...others] = reservations;
  if (!next) return null;
  return (
    <p className={phaseOf(next, now) === "active" ? "node-policy" : "node-policy node-upcoming"} data-testid="node-reservation">
      <ReservedUntil reservation={next} />
      {next.maintenance ? ", for maintenance" : `, for ${membersInWords(next)}`}. {next.reason && `Reason: ${next.reason}. `}
      {effectOn(next, now)}
      {others.length > 0 && (
        <>
          {" "}
          <a href="#node-reservations">
            {others.length} more {others.length === 1 ? "reservation" : "reservations"}
          </a>
          .
        </>
      )}
    </p>
  );
}
