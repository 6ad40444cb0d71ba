// Reservations of nodes as every page shows them: a name that links to the reservation, a badge, and sentences in which the names are links.

import { Link } from "@tanstack/react-router";
import { useReservations } from "../api/reservations";
import { useNow } from "../lib/clock";
import { absolute } from "../lib/format";
import { type Phase, type Reservation, membersInWords, phaseOf, remainingTime, splitAtReservations } from "../lib/reservation";
import { JobLink, Middle } from "./Name";
import "./reservation.css";

export const PHASE_SHOWN: Record<Phase, { glyph: string; word: string; tone: string }> = {
  active: { glyph: "▣", word: "active", tone: "warn" },
  upcoming: { glyph: "◷", word: "upcoming", tone: "muted" },
};

export function ReservationLink({ reservation }: { reservation: Pick<Reservation, "id" | "name"> }) {
  return (
    <Link to="/reservations" search={{ reservation: reservation.name }} className="named reservation-link">
      <Middle text={reservation.name} />
    </Link>
  );
}

/** Names of reservations, each a link. */
export function ReservationNames({ names }: { names: readonly string[] }) {
  return names.map((name, index) => (
    <span key={name}>
      {index > 0 && ", "}
      <Link to="/reservations" search={{ reservation: name }} className="reservation-inline">
        {name}
      </Link>
    </span>
  ));
}

/** The phase of a reservation as glyph, colour and word. */
export function ReservationPhase({ reservation }: { reservation: Reservation }) {
  const phase = phaseOf(reservation, useNow());
  if (phase === undefined) return <span className="muted">over</span>;
  const { glyph, word, tone } = PHASE_SHOWN[phase];
  return (
    <span className={`nowrap ${tone}`}>
      <span aria-hidden>{glyph}</span> {word}
    </span>
  );
}

/** Reservations of one node on one line: the next one by name and time, and how many more there are. */
export function ReservationBadge({ reservations }: { reservations: readonly Reservation[] }) {
  const now = useNow();
  const next = reservations[0];
  const phase = next && phaseOf(next, now);
  if (!next || !phase) return null;
  return (
    <span className="reservation-badge" title={reservations.map(inWords).join("\n")} data-testid="reservation-badge">
      <Glyph phase={phase} />
      <ReservationLink reservation={next} />
      <span className="muted nowrap">{remainingTime(next, now)}</span>
      {reservations.length > 1 && <span className="muted nowrap">+{reservations.length - 1}</span>}
    </span>
  );
}

/** The glyph alone, for windows that have no room for the badge. */
export function ReservationGlyph({ reservations }: { reservations: readonly Reservation[] }) {
  const now = useNow();
  const next = reservations[0];
  const phase = next && phaseOf(next, now);
  if (!next || !phase) return null;
  return (
    <span className="reservation-glyph" title={reservations.map(inWords).join("\n")}>
      {" "}
      <Glyph phase={phase} />
      <span className="hidden-text">
        {" "}
        {next.name}, {remainingTime(next, now)}
      </span>
    </span>
  );
}

function Glyph({ phase }: { phase: Phase }) {
  const { glyph, tone } = PHASE_SHOWN[phase];
  return (
    <span className={tone}>
      <span aria-hidden>{glyph}</span>
      <span className="hidden-text">{phase === "active" ? "reserved now:" : "reserved later:"}</span>
    </span>
  );
}

/** Returns all of a reservation in one line, for a tooltip. */
function inWords(one: Reservation): string {
  return `${one.name}, for ${membersInWords(one)}: ${absolute(one.from)} to ${absolute(one.until)}`;
}

/** Who may use the nodes: links to the jobs of members. */
export function ReservationMembers({ reservation: { maintenance, projects, users, jobs } }: { reservation: Reservation }) {
  if (maintenance) return <>nobody: maintenance</>;
  return (
    <ul className="reservation-members">
      {projects.map((project) => (
        <li key={`project ${project}`}>
          <span className="muted">project</span>{" "}
          <Link to="/jobs" search={{ project }} className="named">
            <Middle text={project} />
          </Link>
        </li>
      ))}
      {users.map((user) => (
        <li key={`user ${user}`}>
          <span className="muted">user</span>{" "}
          <Link to="/jobs" search={{ user }} className="named">
            <Middle text={user} />
          </Link>
        </li>
      ))}
      {jobs.map((job) => (
        <li key={`job ${job}`}>
          <span className="muted">job</span> <JobLink id={job} />
        </li>
      ))}
    </ul>
  );
}

interface SentenceProps {
  /** Code of the reason that the sentence explains. Only `reserved` names reservations. */
  code: string | null | undefined;
  children: string;
}

/** A sentence of the server. Where it explains that nodes are reserved, the names of the reservations are links. */
export function ReservedSentence({ code, children }: SentenceProps) {
  return code === "reserved" ? <WithLinks sentence={children} /> : <>{children}</>;
}

function WithLinks({ sentence }: { sentence: string }) {
  const { data } = useReservations();
  return splitAtReservations(sentence, data?.items ?? []).map((piece, index) =>
    typeof piece === "string" ? (
      piece
    ) : (
      <Link key={index} to="/reservations" search={{ reservation: piece.reservation.name }} className="reservation-inline">
        {piece.reservation.name}
      </Link>
    ),
  );
}
