// For whom a node is reserved, now and ahead, and which jobs it takes until then.

import { RESERVATIONS_SECONDS, useReservations } from "../../api/reservations";
import { serverNow, useNow } from "../../lib/clock";
import { type Reservation, effectOn, membersInWords, notOver } from "../../lib/reservation";
import { Empty, Panel } from "../../parts/Panel";
import { ReservationLink, ReservationMembers, ReservationPhase } from "../../parts/Reservation";
import { Until } from "../../parts/Time";
import { When } from "../../parts/When";

export function Reservations({ node, className }: { node: string; className: string }) {
  const asked = useReservations();
  return (
    <Panel title="Reservations" id="node-reservations" className={className} asked={asked} everySeconds={RESERVATIONS_SECONDS} height={80}>
      {({ items }) => {
        const here = notOver(items, serverNow()).filter((one) => one.nodes.includes(node));
        if (here.length === 0) return <Empty>No active or upcoming reservation includes this node.</Empty>;
        return (
          <ul className="node-list">
            {here.map((one) => (
              <li key={one.id} className="stack node-reservation">
                <span className="row">
                  <strong className="named">
                    <ReservationLink reservation={one} />
                  </strong>
                  <ReservationPhase reservation={one} />
                </span>
                <Times of={one} />
                <span className="row">
                  <span className="muted">For</span> <ReservationMembers reservation={one} />
                </span>
                <span className="muted">Made by {one.made_by}</span>
              </li>
            ))}
          </ul>
        );
      }}
    </Panel>
  );
}

function Times({ of }: { of: Reservation }) {
  const active = Date.parse(of.from) <= useNow();
  return (
    <span>
      <When at={of.from} /> – <When at={of.until} />
      <span className="muted">
        {active ? ", ends " : ", begins "}
        <Until at={active ? of.until : of.from} />
      </span>
    </span>
  );
}

/** Under the name of a node: the reservation that is active or comes next, and what it does to jobs. */
export function ReservationNotice({ reservations }: { reservations: readonly Reservation[] }) {
  const now = useNow();
  const [next, ...others] = reservations;
  if (!next) return null;
  const active = Date.parse(next.from) <= now;
  return (
    <p className={active ? "node-policy" : "node-policy node-upcoming"} data-testid="node-reservation">
      <ReservationPhase reservation={next} /> reservation <ReservationLink reservation={next} />, {active ? "ends" : "begins"}{" "}
      <Until at={active ? next.until : next.from} />
      {next.maintenance ? ", for maintenance" : `, for ${membersInWords(next)}`}. {effectOn(next, now)}
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
