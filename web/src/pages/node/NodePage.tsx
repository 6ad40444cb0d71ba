// One node, by id or name: whether it takes work and why not, its GPUs and jobs, what befell it, and what operators can do with it.

import { Link, useParams, useSearch } from "@tanstack/react-router";
import { ApiError, type Node } from "../../api/client";
import { useReservationIndex } from "../../api/reservations";
import type { Reservation } from "../../lib/reservation";
import { CopyAs } from "../../parts/CopyAs";
import { word } from "../../lib/commands";
import { Middle } from "../../parts/Name";
import { NodeState } from "../../parts/NodeState";
import { Failed } from "../../parts/Panel";
import { Ago, Until } from "../../parts/Time";
import { Facts, Labels } from "./Facts";
import { Gpus } from "./Gpus";
import { HeldJobs } from "./HeldJobs";
import { History, Incidents } from "./History";
import { NodeActions } from "./NodeActions";
import { NodeEvents } from "./NodeEvents";
import { PastNodeView } from "./PastNodeView";
import { ReservationNotice, Reservations } from "./Reservations";
import { Trust } from "./Trust";
import { useNode, useNodeGpus, useNodeHealth, usePastNode } from "./queries";
import "./node.css";

const NO_RESERVATIONS: readonly Reservation[] = [];

export default function NodePage() {
  const { node } = useParams({ from: "/nodes/$node" });
  const { at } = useSearch({ from: "__root__" });
  return at ? <Then key={`${node} ${at}`} node={node} at={at} /> : <Now key={node} node={node} />;
}

function Now({ node }: { node: string }) {
  const asked = useNode(node);
  const { data, error } = asked;
  const gone = error instanceof ApiError && error.status === 404;
  const index = useReservationIndex();
  const name = data?.name ?? node;
  const reservations = index.byNode.get(name) ?? NO_RESERVATIONS;
  return (
    <div data-testid="page-node">
      <header className="page-head">
        <h1 className="node-name">
          <Middle text={data?.name ?? node} />
        </h1>
        {data && !gone && <Standing node={data} />}
        <span className="space" />
        {data && !gone && <NodeActions node={data} />}
      </header>
      {gone ? (
        <Gone node={node} />
      ) : (
        <>
          {error && !data && <Failed error={error} asked={asked} />}
          {data && data.policy !== "schedulable" && <Switched node={data} />}
          <ReservationNotice reservations={reservations} />
          <Present node={node} asked={asked} reservations={reservations} />
        </>
      )}
    </div>
  );
}

function Standing({ node }: { node: Node }) {
  const busy = node.gpus.filter((gpu) => gpu.job_id).length;
  return (
    <>
      <NodeState node={node} title={node.standing_reason ?? node.policy_reason ?? undefined} />
      <span className="nowrap">
        {busy} of {node.gpus.length} GPUs held
      </span>
      <span className="muted nowrap">{node.gpu_type}</span>
      <Link to="/cluster" search={{ node: node.id }}>
        on the map
      </Link>
      <CopyAs command={`headway node describe ${word(node.name)}`} path={`/api/v1/nodes/${encodeURIComponent(node.name)}`} />
    </>
  );
}

/** Who wants it so, why, and until when. */
function Switched({ node }: { node: Node }) {
  return (
    <p className="node-policy">
      {node.policy === "draining" ? "‖ Drained" : "‖ Cordoned"} by {node.policy_by?.replace(/^user:/, "") ?? "somebody"}
      {node.policy_since && (
        <>
          {" "}
          <Ago at={node.policy_since} />
        </>
      )}
      {node.policy_reason ? `: ${node.policy_reason}` : ", without a reason given"}
      {node.drain_deadline && (
        <>
          . Who has nowhere else to go may stay; the deadline is <Until at={node.drain_deadline} />
        </>
      )}
    </p>
  );
}

interface PresentProps {
  node: string;
  asked: ReturnType<typeof useNode>;
  /** Reservations of the node, the next one first. */
  reservations: readonly Reservation[];
}

function Present({ node, asked, reservations }: PresentProps) {
  const health = useNodeHealth(node);
  const gpus = useNodeGpus(node);
  return (
    <div className="grid">
      <Gpus asked={gpus} className="span-12" />
      <Trust asked={health} className="span-6" />
      <HeldJobs asked={gpus} className="span-6" />
      <Incidents asked={health} className="span-6" />
      <History asked={health} className="span-6" />
      <NodeEvents node={node} until={undefined} className="span-12" />
      <Facts asked={asked} className="span-6" />
      <div className="span-6 stack">
        <Labels asked={asked} className="" />
        <Reservations reservations={reservations} className="" />
      </div>
    </div>
  );
}

/** There is none of that name now; of one that was deleted the events remain. */
function Gone({ node }: { node: string }) {
  return (
    <div className="stack">
      <p data-testid="node-gone">
        There is no node <strong>{node}</strong>: it was deleted, or never joined. Those that are there stand in the{" "}
        <Link to="/cluster" search={{ as: "table" }}>
          list of nodes
        </Link>
        .
      </p>
      <NodeEvents node={node} until={undefined} className="" />
    </div>
  );
}

function Then({ node, at }: { node: string; at: string }) {
  const asked = usePastNode(node, at);
  return (
    <div data-testid="page-node">
      <header className="page-head">
        <h1 className="node-name">
          <Middle text={asked.data?.name ?? node} />
        </h1>
      </header>
      <div className="grid">
        <PastNodeView asked={asked} />
        <NodeEvents node={node} until={at} className="span-12" />
      </div>
    </div>
  );
}
