// Whether a node takes new work, and why not; what is held against it and until when.

import type { components } from "../../api/schema";
import { fixed } from "../../lib/format";
import { type Asked, Panel } from "../../parts/Panel";
import { NodeState } from "../../parts/NodeState";
import { ReservationLink } from "../../parts/Reservation";
import { Ago, Until } from "../../parts/Time";

type Health = components["schemas"]["NodeHealth"];

interface Props {
  asked: Asked<Health>;
  className: string;
}

export function Trust({ asked, className }: Props) {
  return (
    <Panel title="Does it take work?" id="node-trust" className={className} asked={asked} everySeconds={10}>
      {(health) => (
        <div className="stack">
          <p>
            {health.takes_work ? (
              <strong className="good">✓ Yes: new work may start here.</strong>
            ) : health.reservation && health.why_not.length === 1 ? (
              <strong className="warn">
                ▣ {health.reservation.maintenance ? "No" : "Only jobs of members"}: the node is reserved for <ReservationLink reservation={health.reservation} />.
              </strong>
            ) : (
              <strong className="bad">✕ No: nothing new starts here.</strong>
            )}
          </p>
          {health.why_not.length > 0 && <Sentences label="Why not" of={health.why_not} />}
          <dl className="facts">
            <dt>Reach</dt>
            <dd>
              {health.availability}
              {health.availability_since && (
                <>
                  {" "}
                  for <Ago at={health.availability_since} suffix="" />
                </>
              )}
              ; its agent is {health.connected ? "connected" : <span className="bad">not connected</span>}
              {health.heard_at && (
                <>
                  , last heard of <Ago at={health.heard_at} />
                </>
              )}
            </dd>
            <dt>Standing</dt>
            <dd>
              <Standing of={health} />
            </dd>
            <dt>Health score</dt>
            <dd>
              <meter className="node-score" min={0} max={1} value={health.health_score} aria-label="health score" /> {fixed(health.health_score)} of 1
              <span className="muted"> · incidents lower it, time heals it</span>
            </dd>
            <dt>GPUs</dt>
            <dd className={health.gpus_healthy < health.gpus_total ? "bad" : undefined}>
              {health.gpus_healthy} of {health.gpus_total} healthy
            </dd>
          </dl>
          {health.conditions.length > 0 && <Sentences label="It says of itself" of={health.conditions} />}
          {health.remarks.length > 0 && <Sentences label="Worth knowing" of={health.remarks} />}
        </div>
      )}
    </Panel>
  );
}

function Standing({ of }: { of: Health }) {
  const { standing, standing_reason: reason, standing_since: since, standing_until: until, quarantines_in_a_row: times } = of;
  if (standing === "good") return <span className="good">✓ trusted; nothing is held against it</span>;
  return (
    <>
      <NodeState node={{ availability: "available", policy: "schedulable", standing }} />
      {reason && <>: {reason}</>}
      {since && (
        <>
          ; for <Ago at={since} suffix="" />
        </>
      )}
      {until && (
        <>
          , over <Until at={until} />
        </>
      )}
      {times > 1 && `; ${times} quarantines in a row, each twice as long as the one before`}
    </>
  );
}

function Sentences({ label, of }: { label: string; of: string[] }) {
  return (
    <div>
      <h3>{label}</h3>
      <ul className="node-sentences">
        {of.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </div>
  );
}
