// The map with what belongs to it: what it is coloured by, what the colours mean, and the node that is selected.

import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useCallback, useMemo, useState } from "react";
import { count } from "../../lib/format";
import type { ReservationIndex } from "../../lib/reservation";
import { type Asked, Panel } from "../../parts/Panel";
import { FleetMap } from "./FleetMap";
import { Legend } from "./Legend";
import { Selected } from "./Selected";
import type { Fit } from "./filter";
import type { Fleet } from "./fleet";
import { type ColourBy, lookOf } from "./palette";
import { everySeconds, sharesOf, useMeasured } from "./queries";
import type { Change, ClusterSearch } from "./search";
import { useLooks } from "./theme";

const WAYS: readonly [ColourBy, string, string][] = [
  ["job", "job", "who holds a GPU; of those that nobody holds, why"],
  ["activity", "activity", "what a GPU does, and why it is idle"],
  ["utilisation", "busy", "share of the time in which some kernel ran, of the nodes in sight"],
  ["health", "health", "how its node is"],
];

interface Props {
  asked: Asked<Fleet>;
  fleet: Fleet;
  fit: Fit | undefined;
  search: ClusterSearch & { at?: string | undefined };
  change: Change;
  reservations: ReservationIndex;
}

export function MapView({ asked, fleet, fit, search, change, reservations }: Props) {
  const { at, node } = search;
  const by = search.by ?? "job";
  const { theme, looks } = useLooks();
  const [lit, setLit] = useState<string>();
  const measured = useMeasured(by === "utilisation" && !at);
  const shares = useMemo(() => (by === "utilisation" ? sharesOf(fleet, measured.data ?? new Map()) : undefined), [by, fleet, measured.data]);
  const look = useMemo(() => lookOf(fleet, by, shares), [fleet, by, shares]);
  const place = useMemo(() => fleet.nodes.findIndex((one) => one.id === node || one.name === node), [fleet, node]);
  const navigate = useNavigate();
  const open = useCallback((id: string) => void navigate({ to: "/nodes/$node", params: { node: id }, search: (before) => ({ at: before.at }) }), [navigate]);
  const select = useCallback((id: string | undefined) => change({ node: id }), [change]);
  return (
    <>
      <Panel
        title="Map"
        id="cluster-map"
        className="cluster-main"
        asked={asked}
        everySeconds={everySeconds(fleet)}
        tools={
          <span className="row" role="group" aria-label="Coloured by">
            {WAYS.map(([way, word, means]) => (
              <button key={way} className="button cluster-way" aria-pressed={by === way} title={means} onClick={() => change({ by: way })}>
                {word}
              </button>
            ))}
          </span>
        }
      >
        {() => (
          <FleetMap
            {...{ fleet, look, looks, theme, shares, reservations, lit }}
            admitted={fit?.cells}
            onLit={setLit}
            selected={fleet.nodes[place]?.id}
            onSelect={select}
            onOpen={open}
          />
        )}
      </Panel>
      <div className="cluster-side stack">
        {place >= 0 && <Selected fleet={fleet} place={place} reservations={reservations.byNode} past={at !== undefined} onClose={() => select(undefined)} />}
        <Legend
          {...{ fleet, fit, by, theme, search, change, reservations, lit }}
          onLit={setLit}
          measured={<Measured asked={measured} shares={shares} past={at !== undefined} />}
        />
      </div>
    </>
  );
}

interface MeasuredProps {
  asked: { data: unknown; error: Error | null };
  shares: Float32Array | undefined;
  past: boolean;
}

/** Of how many GPUs it is known how busy they are, and what to do for more. */
function Measured({ asked, shares, past }: MeasuredProps): ReactNode {
  if (past) return "How busy GPUs were is not kept. Colour by job or activity instead.";
  if (asked.error) return `Not known: ${asked.error.message}`;
  if (!asked.data || !shares) return "Asking …";
  const known = shares.reduce((sum, share) => sum + (Number.isNaN(share) ? 0 : 1), 0);
  return `Known of ${count(known)} of ${count(shares.length)} GPUs. Hatched: emulated, out of contact, or not told by the driver.`;
}
