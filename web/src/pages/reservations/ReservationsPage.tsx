// Reservations and maintenance windows: all that are active or upcoming, and one of them beside the list.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type KeyboardEvent, useRef } from "react";
import { RESERVATIONS_SECONDS, useReservationIndex, useReservations } from "../../api/reservations";
import { serverNow } from "../../lib/clock";
import { count } from "../../lib/format";
import { PHASES, type Phase, type Reservation, membersInWords, phaseOf } from "../../lib/reservation";
import { CopyAs } from "../../parts/CopyAs";
import { Counts } from "../../parts/Counts";
import { type Column, DataTable } from "../../parts/DataTable";
import { Filter } from "../../parts/Filter";
import { Middle, NodeLink } from "../../parts/Name";
import { Box, Empty, Panel } from "../../parts/Panel";
import { NextChange, PHASE_SHOWN, ReservationLink, ReservationPhase } from "../../parts/Reservation";
import { When } from "../../parts/When";
import { escapes } from "../../shell/keys";
import { CreateReservation } from "./CreateReservation";
import { ReservationDetail } from "./ReservationDetail";
import { fits, sorted } from "./list";
import "./reservations.css";

const VERBS = "reservation.made,reservation.began,reservation.ended,reservation.cancelled";

const NAME: Column<Reservation> = { id: "name", header: "Reservation", cell: (one) => <ReservationLink reservation={one} />, sort: "name" };
const STATE: Column<Reservation> = { id: "state", header: "State", width: "104px", cell: (one) => <ReservationPhase reservation={one} />, from: "tablet" };
const NEXT: Column<Reservation> = { id: "next", header: "Next change", width: "146px", cell: (one) => <NextChange reservation={one} />, sort: "next", hint: "when it begins, or when it ends" };
const NODES: Column<Reservation> = { id: "nodes", header: "Nodes", cell: (one) => <Nodes of={one} />, from: "tablet" };
const WHOLE: readonly Column<Reservation>[] = [
  NAME,
  STATE,
  NEXT,
  { id: "from", header: "From", width: "136px", cell: (one) => <When at={one.from} />, sort: "from", from: "tablet" },
  { id: "until", header: "Until", width: "136px", cell: (one) => <When at={one.until} />, sort: "until", from: "tablet" },
  NODES,
  { id: "for", header: "For", from: "desktop", cell: (one) => <span title={membersInWords(one)}>{membersInWords(one)}</span> },
  { id: "reason", header: "Reason", from: "desktop", cell: (one) => <span title={one.reason ?? undefined}>{one.reason ?? "–"}</span> },
  { id: "by", header: "Made by", width: "120px", from: "desktop", cell: (one) => <Middle text={one.made_by} />, sort: "by" },
];
/** Columns of the list beside an open reservation: its panel shows the rest. */
const BESIDE: readonly Column<Reservation>[] = [NAME, STATE, NEXT, NODES];

export default function ReservationsPage() {
  const { at, phase, q, reservation: open, sort = "from" } = useSearch({ from: "/reservations" });
  const navigate = useNavigate({ from: "/reservations" });
  const page = useRef<HTMLDivElement>(null);
  const asked = useReservations();
  const { all } = useReservationIndex();
  // The index changes whenever a phase does, and nothing here depends on the time otherwise.
  const now = serverNow();
  const rows = sorted(all.filter((one) => fits(one, { phase, q }, now)), sort, now);
  const chosen = open === undefined ? undefined : all.find((one) => one.name === open || one.id === open);
  const change = (part: { phase?: Phase | undefined; q?: string | undefined; sort?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...part }), replace: true, resetScroll: false });
  const choose = (name: string | undefined) => {
    void navigate({ search: (before) => ({ ...before, reservation: name }), replace: open !== undefined, resetScroll: false });
  };
  const close = () => {
    page.current?.querySelector<HTMLElement>('tr[aria-selected="true"]')?.focus();
    choose(undefined);
  };
  const onKey = (event: KeyboardEvent) => {
    if (open !== undefined && escapes(event)) close();
  };
  const missing = asked.data !== undefined && open !== undefined && chosen === undefined;
  return (
    <div data-testid="page-reservations" className="stack" ref={page} onKeyDown={onKey}>
      <header className="page-head">
        <h1>Reservations</h1>
        <span className="muted">nodes that are reserved for some jobs, or closed for maintenance</span>
        <span className="space" />
        <CreateReservation label="Reserve nodes" nodes={[]} />
      </header>
      {at && <p className="muted">This list shows the present. Reservations of the past are in the events.</p>}
      <div className="row">
        <Counts
          label="Reservations by state"
          testId="reservation-counts"
          counts={PHASES.map((one) => ({
            key: one,
            label: `${PHASE_SHOWN[one].glyph} ${PHASE_SHOWN[one].word}`,
            count: all.filter((each) => phaseOf(each, now) === one).length,
          }))}
          pressed={(one) => one === phase}
          onPress={(one) => change({ phase: one === phase ? undefined : (one as Phase) })}
        />
        <Filter first label="Name, node, member" hint="part of it, in any case (/)" value={q} onChange={(text) => change({ q: text })} width={180} />
        <Link to="/events" search={{ verb: VERBS }}>
          Past reservations in Events
        </Link>
      </div>
      <div className={chosen || missing ? "split" : undefined}>
        <Panel
          title="Active and upcoming"
          id="reservations"
          note={asked.data && `${count(rows.length)} of ${count(all.length)}`}
          asked={asked}
          everySeconds={RESERVATIONS_SECONDS}
          tools={<CopyAs command="headway reservation list" path="/api/v1/reservations" />}
        >
          {() =>
            rows.length === 0 ? (
              <Nothing all={all.length} />
            ) : (
              <DataTable
                label="Reservations, the next one first"
                testId="reservation-table"
                rows={rows}
                columns={chosen ? BESIDE : WHOLE}
                keyOf={(one) => one.name}
                sort={sort}
                onSort={(by) => change({ sort: by })}
                onOpen={(one) => choose(one.name)}
                selected={chosen?.name ?? ""}
              />
            )
          }
        </Panel>
        {chosen && <ReservationDetail key={chosen.id} reservation={chosen} onClose={close} />}
        {missing && (
          <Box title="Reservation" id="reservation">
            <p data-testid="reservation-gone">
              There is no active or upcoming reservation <strong>{open}</strong>. It is over, was cancelled, or never existed.{" "}
              <Link to="/events" search={{ verb: VERBS }}>
                Events of reservations
              </Link>
            </p>
          </Box>
        )}
      </div>
    </div>
  );
}

function Nodes({ of: { nodes } }: { of: Reservation }) {
  const [first, ...others] = nodes;
  if (first === undefined) return null;
  return (
    <span className="reservation-nodes-cell" title={nodes.join(", ")}>
      <NodeLink node={first} />
      {others.length > 0 && <span className="muted nowrap">+{count(others.length)}</span>}
    </span>
  );
}

function Nothing({ all }: { all: number }) {
  if (all > 0) return <Empty>The filter hides all {count(all)} reservations.</Empty>;
  return (
    <Empty>
      No reservation is active or upcoming. An operator makes one here, or with <code>headway reservation create NAME --node NODE --for 2h --maintenance</code>.
    </Empty>
  );
}
