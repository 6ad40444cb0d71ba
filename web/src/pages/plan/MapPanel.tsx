// GPUs by node, before the plan and after it, side by side: where a job goes, and whose place it takes.

import { useEffect, useMemo, useRef, useState } from "react";
import type { Plan } from "../../api/client";
import { count } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, NodeLink } from "../../parts/Name";
import { Empty, Loading, Panel } from "../../parts/Panel";
import { type Assignment, useGpus } from "./asks";
import { type MapNode, geometry, mapOf, under } from "./map";
import { MapHalf } from "./MapHalf";

/** Below this the halves stand one above the other. */
const ABREAST = 560;
const BETWEEN = 16;

interface Props {
  plan: Plan;
  before: readonly Assignment[] | undefined;
  /** Whether what was before is still being asked for. */
  asking: boolean;
  lit: string | undefined;
}

export function MapPanel({ plan, before, asking, lit }: Props) {
  const gpus = useGpus();
  const [all, setAll] = useState(false);
  const [asTable, setAsTable] = useState(false);
  const map = useMemo(() => gpus.data && mapOf(gpus.data, plan, before), [gpus.data, plan, before]);
  const changing = useMemo(() => map?.nodes.filter((node) => node.changes) ?? [], [map]);
  const nodes = all || before === undefined ? (map?.nodes ?? []) : changing;
  const names = useMemo(() => new Map([...(before ?? []), ...plan.assignments, ...plan.moves].map((one) => [one.job_id, one.job_name])), [before, plan]);
  return (
    <Panel
      title="GPUs before and after"
      id="plan-map"
      className="span-7"
      asked={gpus}
      everySeconds={3_600}
      height={240}
      note={map && before && `${count(changing.length)} of ${count(map.nodes.length)} nodes change, ${count(map.changed)} GPUs`}
      tools={
        map && (
          <>
            {before && changing.length < map.nodes.length && (
              <button className="link" aria-pressed={all} onClick={() => setAll(!all)}>
                {all ? "only what changes" : "all nodes"}
              </button>
            )}
            <button className="link" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
              {asTable ? "as map" : "as table"}
            </button>
          </>
        )
      }
    >
      {() => (
        <>
          {before === undefined && !asking && <p className="muted">What was before this plan is not kept, or nothing was: this is what it gives.</p>}
          {asking ? (
            <Loading height={240} />
          ) : nodes.length === 0 ? (
            <Empty>No GPU changes hands by this plan.</Empty>
          ) : asTable ? (
            <AsTable nodes={nodes} names={names} before={before !== undefined} />
          ) : (
            <Halves key={`${plan.id} ${all}`} nodes={nodes} names={names} both={before !== undefined} lit={lit} />
          )}
          {map && map.ended > 0 && <p className="muted">{gpusOf(map.ended)} shown as free belonged to jobs that had ended before the plan was made.</p>}
          {map && map.gone > 0 && <p className="muted">{gpusOf(map.gone)} of the plan are on nodes that are there no longer.</p>}
        </>
      )}
    </Panel>
  );
}

function gpusOf(many: number): string {
  return many === 1 ? "1 GPU" : `${count(many)} GPUs`;
}

interface Shown {
  nodes: readonly MapNode[];
  names: ReadonlyMap<string, string>;
}

function Halves({ nodes, names, both, lit }: Shown & { both: boolean; lit: string | undefined }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [pointed, setPointed] = useState<{ node: number; gpu: number; side: "before" | "after" }>();
  useEffect(() => {
    if (!box.current) return;
    const resize = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    resize.observe(box.current);
    return () => resize.disconnect();
  }, []);
  const abreast = both && width >= ABREAST;
  const half = abreast ? Math.floor((width - BETWEEN) / 2) : width;
  const at = useMemo(() => geometry(nodes, half), [nodes, half]);
  const node = pointed && nodes[pointed.node];
  const [from, to] = node ? [node.before[pointed.gpu], node.after[pointed.gpu]] : [];
  const shown = lit ?? (pointed?.side === "before" ? from : to) ?? undefined;
  const point = (side: "before" | "after") => (x: number, y: number) => {
    const hit = under(at, nodes, x, y);
    // What was pointed at last stays, so that its names can be followed.
    if (hit && (hit.node !== pointed?.node || hit.gpu !== pointed.gpu || side !== pointed.side)) setPointed({ ...hit, side });
  };
  const sides = both ? (["before", "after"] as const) : (["after"] as const);
  return (
    <>
      <div className="plan-map" tabIndex={0} role="region" aria-label="GPUs by node before and after the plan">
        <div ref={box} className="plan-halves" style={{ gridTemplateColumns: abreast ? "1fr 1fr" : "1fr", columnGap: BETWEEN }}>
          {width > 0 &&
            sides.map((side) => (
              <figure key={side} className="plan-side">
                <figcaption className="muted">{side}</figcaption>
                <MapHalf side={side} nodes={nodes} at={at} lit={shown} told={told(nodes, side)} onPoint={point(side)} />
              </figure>
            ))}
        </div>
      </div>
      <p className="plan-pointed" data-testid="plan-pointed">
        {node ? (
          <>
            <NodeLink node={node.id} name={node.name} /> <span className="nowrap">GPU {pointed.gpu}:</span>
            {both && (
              <>
                <Holder job={from} names={names} />
                <span aria-hidden>→</span>
              </>
            )}
            <Holder job={to} names={names} />
          </>
        ) : (
          <span className="muted">Coloured and outlined: changes hands. Grey: stays. Hollow: free. Point at a GPU to see whose it is.</span>
        )}
      </p>
    </>
  );
}

/** One sentence for who does not see it. */
function told(nodes: readonly MapNode[], side: "before" | "after"): string {
  const held = nodes.reduce((sum, node) => sum + node[side].filter((job) => job !== undefined).length, 0);
  const all = nodes.reduce((sum, node) => sum + node[side].length, 0);
  const jobs = new Set(nodes.flatMap((node) => node[side].filter((job) => job !== undefined)));
  return `${side} the plan: ${count(held)} of ${count(all)} GPUs of ${count(nodes.length)} nodes are held by ${count(jobs.size)} jobs; the same as a table is beside the title`;
}

function Holder({ job, names }: { job: string | undefined; names: ReadonlyMap<string, string> }) {
  return job === undefined ? <span className="muted">free</span> : <JobLink id={job} name={names.get(job) ?? null} />;
}

function AsTable({ nodes, names, before }: Shown & { before: boolean }) {
  const columns = useMemo(() => {
    const side = (of: "before" | "after"): Column<MapNode> => ({ id: of, header: of === "before" ? "Before" : "After", cell: (node) => <Held node={node} side={of} names={names} /> });
    const all: Column<MapNode>[] = [
      { id: "node", header: "Node", width: "30%", cell: (node) => <NodeLink node={node.id} name={node.name} /> },
      ...(before ? [side("before")] : []),
      side("after"),
    ];
    return all;
  }, [names, before]);
  return <DataTable label="GPUs by node before and after the plan" rows={nodes} columns={columns} keyOf={(node) => node.id} height={360} />;
}

function Held({ node, side, names }: { node: MapNode; side: "before" | "after"; names: ReadonlyMap<string, string> }) {
  const many = new Map<string | undefined, number>();
  for (const job of node[side]) many.set(job, (many.get(job) ?? 0) + 1);
  return (
    <span className="plan-held">
      {[...many].map(([job, gpus]) => (
        <span key={job ?? ""} className="plan-held-one">
          {gpus} × <Holder job={job} names={names} />
        </span>
      ))}
    </span>
  );
}
