import { Skeleton } from "@mantine/core";
import type { Job, Node } from "../api/client";

interface Props {
  nodes: Node[] | undefined;
  jobs: Job[];
  colours: Map<string, string>;
}

interface NodeState {
  word: string;
  tone: "muted" | "warn" | "bad";
  why?: string;
}

/** The gravest of what is seen of a node, thought of it and wanted of it. */
function state(node: Node): NodeState {
  if (node.availability !== "available") return { word: node.availability, tone: "bad" };
  if (node.standing === "quarantined") {
    return { word: "quarantined", tone: "bad", why: node.standing_reason ?? undefined };
  }
  if (node.conditions.length > 0) return { word: "takes nothing new", tone: "warn", why: node.conditions.join("; ") };
  if (node.policy !== "schedulable") {
    return { word: node.policy, tone: "warn", why: node.policy_reason ?? undefined };
  }
  if (node.standing === "probation") return { word: "on probation", tone: "warn" };
  return { word: node.availability, tone: "muted" };
}

/** Nodes as cards, one cell per GPU, coloured by the job that holds it. */
export function NodeMap({ nodes, jobs, colours }: Props) {
  if (!nodes) return <Skeleton height={120} />;
  if (nodes.length === 0) {
    return (
      <p className="muted">
        No agent has joined. Start one: <code>headway agent --server …</code>
      </p>
    );
  }
  const names = new Map(jobs.map((job) => [job.id, job.name]));
  return (
    <>
      <div className="nodes" data-testid="nodes">
        {nodes.map((node) => (
          <div className="node" key={node.id}>
            <strong>{node.name}</strong>{" "}
            <span className={state(node).tone} title={state(node).why}>
              {state(node).word}
            </span>
            <div className="cells">
              {node.gpus.map((gpu) => {
                const holder = gpu.job_id ? (names.get(gpu.job_id) ?? gpu.job_id) : undefined;
                const label = !gpu.healthy ? `broken: ${gpu.broken_cause ?? "unknown cause"}` : (holder ?? "idle");
                return (
                  <div
                    key={gpu.uuid}
                    className={`cell ${holder ? "held" : ""} ${gpu.healthy ? "" : "broken"}`}
                    style={gpu.job_id ? { background: colours.get(gpu.job_id) ?? "var(--muted)" } : undefined}
                    role="img"
                    aria-label={`GPU ${gpu.index}: ${label}`}
                    title={`GPU ${gpu.index}: ${label}`}
                  >
                    {gpu.healthy ? gpu.index : "✕"}
                  </div>
                );
              })}
            </div>
            <div className="muted" style={{ marginTop: 6 }}>
              {node.gpu_type}
            </div>
            {node.remarks.map((remark) => (
              <div className="warn" key={remark}>
                {remark}
              </div>
            ))}
            {state(node).why && <div className={`why ${state(node).tone}`}>{state(node).why}</div>}
          </div>
        ))}
      </div>
      <div className="legend">
        {jobs
          .filter((job) => job.gpus > 0)
          .map((job) => (
            <span key={job.id}>
              <span className="swatch" style={{ background: colours.get(job.id) }} />
              {job.name} ({job.gpus})
            </span>
          ))}
      </div>
    </>
  );
}
