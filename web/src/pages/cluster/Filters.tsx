// What of the cluster is shown: by name, type, job and health. Everything stands in the URL.

import { useMemo } from "react";
import { count } from "../../lib/format";
import { Filter } from "../../parts/Filter";
import { PHASES, type Reservation } from "../../lib/reservation";
import { JobLink } from "../../parts/Name";
import { PHASE_SHOWN } from "../../parts/Reservation";
import type { Fit } from "./filter";
import { type Fleet, HEALTHS } from "./fleet";
import { HEALTH_SHOWN } from "./healths";
import type { Change, ClusterSearch } from "./search";

interface Props {
  fleet: Fleet;
  fit: Fit | undefined;
  search: ClusterSearch;
  /** The active and upcoming reservations of the cluster. */
  reservations: readonly Reservation[];
  change: Change;
}

export function Filters({ fleet, fit, search, reservations, change }: Props) {
  const types = useMemo(() => [...new Set(fleet.nodes.map((node) => node.type))].sort(), [fleet]);
  const { q, type, job, health, reservation } = search;
  const holder = job && fleet.jobs.find((one) => one.id === job);
  return (
    <div className="cluster-filters row" role="search" aria-label="Filter the cluster">
      <Filter label="node, domain or job" hint="part of its name  ( / )" value={q} onChange={(text) => change({ q: text })} first width={210} />
      <select className="field" aria-label="GPU type" value={type ?? ""} onChange={(event) => change({ type: event.target.value || undefined })}>
        <option value="">every type</option>
        {/* One that the URL names and the cluster does not have is shown as what hides everything. */}
        {[...types, ...(type && !types.includes(type) ? [type] : [])].map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
      </select>
      <select className="field" aria-label="Health" value={health ?? ""} onChange={(event) => change({ health: event.target.value || undefined })}>
        <option value="">every state</option>
        {HEALTHS.map((one) => (
          <option key={one} value={one}>
            {HEALTH_SHOWN[one].glyph} {HEALTH_SHOWN[one].word}
          </option>
        ))}
      </select>
      {(reservations.length > 0 || reservation) && (
        <select
          className="field cluster-reservation"
          aria-label="Reservation"
          value={reservation ?? ""}
          onChange={(event) => change({ reservation: event.target.value || undefined })}
        >
          <option value="">reserved or not</option>
          {PHASES.map((phase) => (
            <option key={phase} value={phase}>
              {PHASE_SHOWN[phase].glyph} {PHASE_SHOWN[phase].ofNode}
            </option>
          ))}
          {reservations.map((one) => (
            <option key={one.id} value={one.id}>
              {one.name}
            </option>
          ))}
          {/* A link can lead to a reservation that is over: the filter then hides all nodes. */}
          {reservation && !PHASES.some((phase) => phase === reservation) && !reservations.some((one) => one.id === reservation) && (
            <option value={reservation}>a reservation that is over</option>
          )}
        </select>
      )}
      {job && (
        <span className="cluster-chip row">
          job <JobLink id={job} name={holder ? holder.name : null} />
          <button className="button" aria-label="Of every job again" onClick={() => change({ job: undefined })}>
            ×
          </button>
        </span>
      )}
      <span role="status" className="muted nowrap" data-testid="cluster-fit">
        {fit
          ? `${count(fit.nodeCount)} of ${count(fleet.nodes.length)} nodes, ${count(fit.cellCount)} of ${count(fleet.job.length)} GPUs`
          : `all ${count(fleet.nodes.length)} nodes, ${count(fleet.job.length)} GPUs`}
      </span>
      {fit && (
        <button className="link" onClick={() => change({ q: undefined, type: undefined, job: undefined, health: undefined, reservation: undefined })}>
          clear filters
        </button>
      )}
    </div>
  );
}
