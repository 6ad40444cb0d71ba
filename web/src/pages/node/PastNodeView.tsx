// A node as it was: what is known of a past moment is its state and who held its GPUs.

import { Link } from "@tanstack/react-router";
import type { components } from "../../api/schema";
import { JobLink } from "../../parts/Name";
import { NodeState } from "../../parts/NodeState";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";

type PastNode = components["schemas"]["PastNode"];

export function PastNodeView({ asked }: { asked: Asked<PastNode> }) {
  return (
    <Panel title="As it was then" id="node-past" className="span-12" asked={asked} everySeconds={Number.POSITIVE_INFINITY}>
      {(then) => (
        <div className="stack">
          <p>
            <NodeState node={then} /> since <When at={then.since} /> · {then.gpus_healthy} of {then.gpus} GPUs healthy ·{" "}
            {then.held.reduce((sum, held) => sum + held.gpu_uuids.length, 0)} of {then.gpus} held
          </p>
          {then.held.length === 0 ? (
            <Empty>No job held any of its GPUs.</Empty>
          ) : (
            <ul className="job-lines" aria-label="Jobs that held GPUs">
              {then.held.map((held) => (
                <li key={`${held.job_id} ${held.generation}`}>
                  <JobLink id={held.job_id} name={held.job_name} />
                  <span>
                    {held.gpu_uuids.length} of {then.gpus} GPUs, {held.phase}
                  </span>
                </li>
              ))}
            </ul>
          )}
          <p className="muted">
            What was measured, its health score, labels and reservations are told of the present alone.{" "}
            <Link to="." search={(before) => ({ ...before, at: undefined })}>
              Show the present
            </Link>
          </p>
        </div>
      )}
    </Panel>
  );
}
