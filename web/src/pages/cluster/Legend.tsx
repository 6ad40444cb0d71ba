// What the map's colours mean, with how much there is of each. A job or a class in it is also a filter; a job that is pointed at is lit on the map.

import { Link } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { colourOf, textureOf } from "../../lib/colour";
import { count } from "../../lib/format";
import { PHASES, type ReservationIndex } from "../../lib/reservation";
import { activityShown } from "../../parts/Activity";
import { Middle } from "../../parts/Name";
import { Box, Empty } from "../../parts/Panel";
import { PHASE_SHOWN } from "../../parts/Reservation";
import type { Fit } from "./filter";
import { ACTIVITIES, type Activity, type Fleet, type FleetJob, HEALTHS, census } from "./fleet";
import { HEALTH_SHOWN } from "./healths";
import { CIVIDIS, type ColourBy, type Look, type Theme, activityLook } from "./palette";
import type { Change, ClusterSearch } from "./search";
import { gpus, nodes } from "./words";

interface Props {
  fleet: Fleet;
  fit: Fit | undefined;
  by: ColourBy;
  theme: Theme;
  search: ClusterSearch;
  change: Change;
  onLit: (job: string | undefined) => void;
  lit: string | undefined;
  reservations: ReservationIndex;
  /** What is to be said of measurements, where the colours are theirs. */
  measured: ReactNode;
}

/** The largest jobs; the others are found by name. */
const MOST_JOBS = 40;
const HELD: readonly Activity[] = ["training", "starting", "stopping"];

export function Legend(props: Props) {
  const { fleet, by, theme } = props;
  const { activities, healths } = useMemo(() => census(fleet), [fleet]);
  const idle = ACTIVITIES.filter((activity) => activities.has(activity) && (by === "activity" || !HELD.includes(activity)));
  return (
    <>
      {by === "job" && <Jobs {...props} />}
      {by === "utilisation" && (
        <Box title="How busy" note="of the ten seconds before" id="cluster-busy">
          <div className="cluster-ramp" style={{ background: `linear-gradient(90deg, ${CIVIDIS.join(", ")})` }} aria-hidden />
          <div className="row muted">
            0 %<span className="space" />
            share of the time in which some kernel ran
            <span className="space" />
            100 %
          </div>
          <p className="muted">Not how much of the GPU did work: for that look at a job&apos;s goodput.</p>
          <p role="status">{props.measured}</p>
        </Box>
      )}
      {by === "health" && <Healths {...props} healths={healths} />}
      {(by === "job" || by === "activity") && (
        <Box title={by === "job" ? "Without a job, and why" : "What GPUs do"} note={`of ${gpus(fleet.job.length)}`} id="cluster-activities">
          {idle.length === 0 ? (
            <Empty>Every GPU is held by a job.</Empty>
          ) : (
            <ul className="cluster-legend">
              {idle.map((activity) => (
                <li key={activity} title={activityShown(activity).means}>
                  <Swatch look={activityLook(activity, theme)} />
                  <span className="cluster-legend-name">
                    {activityShown(activity).word} <span className="muted">{activityShown(activity).means}</span>
                  </span>
                  <span>{count(activities.get(activity))}</span>
                </li>
              ))}
            </ul>
          )}
        </Box>
      )}
    </>
  );
}

function Jobs({ fleet, fit, theme, search, change, lit, onLit }: Props) {
  const inside = useMemo(() => admittedOf(fleet, fit), [fleet, fit]);
  const shown = fleet.jobs.map((job, place) => ({ job, inside: inside?.[place] ?? job.gpus })).filter((one) => one.inside > 0);
  const note = fit ? `${count(shown.length)} of ${count(fleet.jobs.length)} hold GPUs that the filter admits` : `${count(fleet.jobs.length)} hold GPUs`;
  return (
    <Box title="Jobs" note={note} id="cluster-jobs">
      {shown.length === 0 ? (
        <Empty>{fit ? "The filter admits no GPU that a job holds." : "No job holds a GPU. To submit one: headway submit job.yaml"}</Empty>
      ) : (
        <ul className="cluster-legend cluster-jobs">
          {shown.slice(0, MOST_JOBS).map(({ job, inside: held }) => (
            <li
              key={job.id}
              className={lit === job.id ? "lit" : undefined}
              onPointerEnter={() => onLit(job.id)}
              onPointerLeave={() => onLit(undefined)}
              onFocus={() => onLit(job.id)}
              onBlur={() => onLit(undefined)}
            >
              <Swatch look={{ fill: colourOf(job.id), texture: textureOf(job.id), ink: theme.text }} />
              <JobName job={job} />
              <span className="nowrap" title={`on ${nodes(job.nodes)}`}>
                {fit ? `${count(held)} of ${gpus(job.gpus)}` : gpus(job.gpus)}
              </span>
              <button
                className="link"
                aria-pressed={search.job === job.id}
                aria-label={`only ${job.name}`}
                onClick={() => change({ job: search.job === job.id ? undefined : job.id })}
              >
                only
              </button>
            </li>
          ))}
        </ul>
      )}
      {shown.length > MOST_JOBS && (
        <p className="muted">
          The {MOST_JOBS} largest of {count(shown.length)}. The filter finds the others by name.
        </p>
      )}
    </Box>
  );
}

function JobName({ job }: { job: FleetJob }) {
  return (
    <Link to="/jobs/$id" params={{ id: job.id }} className="named cluster-legend-name" title={`${job.name} (${job.id})`}>
      <Middle text={job.name} />
    </Link>
  );
}

/** Of each job, how many of its GPUs are admitted. */
function admittedOf(fleet: Fleet, fit: Fit | undefined): Uint32Array | undefined {
  if (!fit) return undefined;
  const inside = new Uint32Array(fleet.jobs.length);
  fleet.job.forEach((job, cell) => {
    if (job >= 0 && fit.cells[cell]) inside[job]! += 1;
  });
  return inside;
}

function Healths({ fleet, search, change, healths, reservations }: Props & { healths: Map<string, number> }) {
  return (
    <Box title="Nodes" note={`of ${nodes(fleet.nodes.length)}`} id="cluster-healths">
      <ul className="cluster-legend">
        {HEALTHS.filter((health) => healths.has(health)).map((health) => (
          <li key={health}>
            <span className={HEALTH_SHOWN[health].tone} aria-hidden>
              {HEALTH_SHOWN[health].glyph}
            </span>
            <span className="cluster-legend-name">{HEALTH_SHOWN[health].word}</span>
            <span>{count(healths.get(health))}</span>
            <button
              className="link"
              aria-pressed={search.health === health}
              aria-label={`only nodes ${HEALTH_SHOWN[health].word}`}
              onClick={() => change({ health: search.health === health ? undefined : health })}
            >
              only
            </button>
          </li>
        ))}
        <Reserved {...{ search, change, reservations }} />
      </ul>
      <p className="muted">A broken GPU is crossed out, whatever its node is.</p>
    </Box>
  );
}

function Reserved({ search, change, reservations }: Pick<Props, "search" | "change" | "reservations">) {
  return PHASES.filter((phase) => reservations.nodesIn[phase].size > 0).map((phase) => {
    const { tone, glyph, ofNode } = PHASE_SHOWN[phase];
    return (
      <li key={phase}>
        <span className={tone} aria-hidden>
          {glyph}
        </span>
        <span className="cluster-legend-name">{ofNode}</span>
        <span>{count(reservations.nodesIn[phase].size)}</span>
        <button
          className="link"
          aria-pressed={search.reservation === phase}
          aria-label={`only nodes ${ofNode}`}
          onClick={() => change({ reservation: search.reservation === phase ? undefined : phase })}
        >
          only
        </button>
      </li>
    );
  });
}

function Swatch({ look }: { look: Look }) {
  return <span className={`cluster-swatch texture ${look.texture ?? ""}`} style={{ backgroundColor: look.fill, borderColor: look.edge ?? "transparent" }} aria-hidden />;
}
