// Reservations under the table of nodes, in windows that have no room for a column of theirs.

import { Link } from "@tanstack/react-router";
import { type Reservation, nodesInWords } from "../../lib/reservation";
import { ReservedUntil } from "../../parts/Reservation";

/** Reservations that are listed; the page of reservations has the others. */
const LISTED = 5;

export function ReservedNodes({ reservations }: { reservations: readonly Reservation[] }) {
  if (reservations.length === 0) return null;
  return (
    <ul className="cluster-reserved" aria-label="Reserved nodes" data-testid="reserved-nodes">
      {reservations.slice(0, LISTED).map((one) => (
        <li key={one.id}>
          <ReservedUntil reservation={one} />
          <span className="muted">: {nodesInWords(one.nodes)}</span>
        </li>
      ))}
      {reservations.length > LISTED && (
        <li>
          <Link to="/reservations">{reservations.length - LISTED} more reservations</Link>
        </li>
      )}
    </ul>
  );
}
