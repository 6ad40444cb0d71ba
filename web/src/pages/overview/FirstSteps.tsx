// For a cluster that has no nodes, no GPUs or no jobs yet: what to do, in order, and what of it is done.

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { type JobList, type Overview, api, unwrap } from "../../api/client";
import { POLL_MS } from "../../api/queries";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { Box } from "../../parts/Panel";

/** Whether any job was ever submitted; asked only while none is live. */
function useAnyJob(overview: Overview | undefined): boolean | undefined {
  const live = overview && Object.values(overview.jobs_by_state).some((jobs) => jobs > 0);
  const { data } = useQuery({
    queryKey: ["jobs", "list", { limit: 1 }],
    queryFn: () => unwrap(api.GET("/api/v1/jobs", { params: { query: { limit: 1 } } })) as Promise<JobList>,
    enabled: live === false,
    refetchInterval: POLL_MS,
  });
  return live || (data && data.items.length > 0);
}

/** Nothing where all of it is done. */
export function FirstSteps({ overview }: { overview: Overview | undefined }) {
  const anyJob = useAnyJob(overview);
  if (!overview || anyJob === undefined) return null;
  const { nodes_total: nodes, gpus_total: gpus } = overview;
  if (nodes > 0 && gpus > 0 && anyJob) return null;
  return (
    <Box title="First steps" id="first-steps" className="span-12">
      <ol className="first-steps">
        <Step done={nodes > 0} title={nodes === 0 ? "A node joins" : nodes === 1 ? "A node has joined" : `${count(nodes)} nodes have joined`}>
          <Command text="headway node token create" /> prints what admits one node; on the node{" "}
          <Command text={`sudo headway node join TOKEN --server ${location.origin}`} /> uses it up. Then its agent is started there.
        </Step>
        <Step done={gpus > 0} title={gpus > 0 ? `${count(gpus)} GPUs are seen` : "Its GPUs are seen"}>
          <Command text="headway node list" /> and the <Link to="/cluster">cluster's page</Link> tell what agents found, and why a node takes nothing.
        </Step>
        <Step done={anyJob} title="A first job">
          <Command text="headway submit --gpus 1 -- ./train.sh" /> runs a script, <Command text="headway submit job.yaml" /> one whose size
          Headway may choose.
        </Step>
      </ol>
    </Box>
  );
}

function Step({ done, title, children }: { done: boolean; title: string; children: ReactNode }) {
  return (
    <li className={done ? "muted" : undefined}>
      <strong className={done ? "good" : undefined}>
        <span aria-hidden>{done ? "✓" : "○"}</span> {title}
        <span className="hidden-text">{done ? ", done" : ", to be done"}</span>
      </strong>
      {!done && <div>{children}</div>}
    </li>
  );
}

function Command({ text }: { text: string }) {
  return (
    <span className="first-steps-command">
      <code>{text}</code> <CopyAs command={text} />
    </span>
  );
}
