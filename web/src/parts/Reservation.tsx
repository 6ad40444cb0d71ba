// Reservations of nodes as every page shows them: a name that links to the reservation, a badge, and sentences in which the names are links.

import { Link } from "@tanstack/react-router";
import { useReservations } from "../api/reservations";
import { useNow } from "../lib/clock";
import { absolute } from "../lib/format";
import type { Tone } from "../lib/colour";
import { type Phase, type Reservation, membersInWords, nextChange, phaseOf, remainingTime, splitAtReservations } from "../lib/reservation";
import { JobLink, Middle } from "./Name";
import { Until } from "./Time";
import { When } from "./When";
import "./reservation.css";

/** `word` is the phase of a reservation, `ofNode` that of a node which it includes. */
export const PHASE_SHOWN: Record<Phase, { glyph: string; tone: Tone; word: string; ofNode: string }> = {
  active: { glyph: "▣", tone: "warn", word: "active", ofNode: "reserved now" },
  upcoming: { glyph: "◷", tone: "muted", word: "upcoming", ofNode: "reserved later" },
};

export function ReservationLink({ reservation }: { reservation: Pick<Reservation, "id" | "name"> }) {
  return (
    <Link to="/reservations" search={{ reservation: reservation.name }} className="named">
      <Middle text={reservation.name} />
    </Link>
  );
}

/** The name of a reservation as a link within a sentence. */
function InlineLink({ name }: { name: string }) {
  return (
    <Link to="/reservations" search={{ reservation: name }} className="inline">
      {name}
    </Link>
  );
}

/** Names of reservations, each a link. */
export function ReservationNames({ names }: { names: readonly string[] }) {
  return names.map((name, index) => (
    <span key={name}>
      {index > 0 && ", "}
      <InlineLink name={name} />
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

/** "ends in 2h 10m" or "begins in 5h 40m", with the moment on hover. */
export function NextChange({ reservation }: { reservation: Reservation }) {
  const { verb, at } = nextChange(reservation, useNow());
  return (
    <span className="nowrap">
      {verb} <Until at={at} />
    </span>
  );
}

/** "reserved: NAME, until 18:00:00 (in 2h)" or "from" of a reservation that has not begun. */
export function ReservedUntil({ reservation }: { reservation: Reservation }) {
  const now = useNow();
  const phase = phaseOf(reservation, now);
  if (phase === undefined) return null;
  const { glyph, tone } = PHASE_SHOWN[phase];
  const { preposition, at } = nextChange(reservation, now);
  return (
    <>
      <span className={tone} aria-hidden>
        {glyph}
      </span>{" "}
      reserved: <ReservationLink reservation={reservation} />, {preposition} <When at={at} /> (<Until at={at} />)
    </>
  );
}

interface BadgeProps {
  /** Reservations of one node, the next one first. */
  reservations: readonly Reservation[];
  /** Shows only the glyph, in windows that have no room for the badge. Screen readers have the words. */
  short?: boolean;
}

/** The next reservation of a node by name and time, and how many more there are. */
export function ReservationBadge({ reservations, short = false }: BadgeProps) {
  const [next, ...others] = reservations;
  return next && <Badge {...{ next, others, short }} />;
}

function Badge({ next, others, short }: { next: Reservation; others: readonly Reservation[]; short: boolean }) {
  const now = useNow();
  const phase = phaseOf(next, now);
  if (!phase) return null;
  const title = [next, ...others].map(inWords).join("\n");
  const { glyph, tone, ofNode } = PHASE_SHOWN[phase];
  const mark = (
    <span className={tone}>
      <span aria-hidden>{glyph}</span>
      <span className="hidden-text">{ofNode}:</span>
    </span>
  );
  if (short) {
    return (
      <span className="reservation-glyph" title={title}>
        {" "}
        {mark}
        <span className="hidden-text">
          {" "}
          {next.name}, {remainingTime(next, now)}
        </span>
      </span>
    );
  }
  return (
    <span className="reservation-badge" title={title} data-testid="reservation-badge">
      {mark}
      <ReservationLink reservation={next} />
      <span className="muted nowrap">{remainingTime(next, now)}</span>
      {others.length > 0 && <span className="muted nowrap">+{others.length}</span>}
    </span>
  );
}

/** Returns all of a reservation in one line, for a tooltip. */
function inWords(one: Reservation): string {
  return `${one.name}, for ${membersInWords(one)}: ${absolute(one.from)} to ${absolute(one.until)}`;
}

/** The members of a reservation: links to their jobs. */
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
    typeof piece === "string" ? piece : <InlineLink key={index} name={piece.reservation.name} />,
  );
}
