// What the plan does not do: moves that would serve a job better and are not made, rules that could not be kept, who could not be planned with.

import { type ReactNode, useState } from "react";
import type { Plan } from "../../api/client";
import type { components } from "../../api/schema";
import { count, signedPercent } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, NodeLink } from "../../parts/Name";
import { Box, Empty } from "../../parts/Panel";
import { change, objective } from "./words";

type Unmoved = components["schemas"]["Unmoved"];

const COLUMNS: Column<Unmoved>[] = [
  { id: "job", header: "Job", width: "30%", cell: (one) => <JobLink id={one.job_id} name={one.job_name} /> },
  { id: "gpus", header: "GPUs", number: true, width: "90px", cell: (one) => change(one.from_gpus, one.to_gpus, count) },
  { id: "gain", header: "Would gain", hint: "of goodput", number: true, width: "90px", cell: (one) => signedPercent(one.gain_pct / 100) },
  { id: "forgone", header: "Forgone", hint: "what the objective forgoes, were moving free", number: true, width: "80px", from: "tablet", cell: (one) => objective(one.forgone) },
  {
    id: "why",
    header: "Why not",
    cell: (one) => (
      <span title={one.detail}>
        <strong>{reason(one)}</strong> <span className="muted">{one.detail}</span>
      </span>
    ),
  },
];

function reason({ code }: Unmoved): string {
  return code.replaceAll("_", " ");
}

export function NotDone({ plan }: { plan: Plan }) {
  const [chosen, setChosen] = useState<string>();
  const unmoved = plan.unmoved ?? [];
  const one = unmoved.find((each) => each.job_id === chosen);
  return (
    <Box title="Not done, and why" id="plan-unmoved" className="span-7" note={unmoved.length > 0 ? `${count(unmoved.length)}, the greatest loss first` : undefined}>
      {unmoved.length === 0 ? (
        <Empty>No running job would be served better by another size than by the one it has.</Empty>
      ) : (
        <DataTable
          label="Moves that are not made"
          rows={unmoved}
          columns={COLUMNS}
          keyOf={(each) => each.job_id}
          onOpen={(each) => setChosen(each.job_id === chosen ? undefined : each.job_id)}
          selected={chosen}
          height={308}
        />
      )}
      {one && (
        <p className="plan-said" aria-live="polite">
          {one.job_name}: {reason(one)}, {one.detail}
        </p>
      )}
    </Box>
  );
}

/** The best move that the round found and did not make. */
export function BestRejected({ plan }: { plan: Plan }) {
  const best = plan.unmoved?.[0];
  if (!best) return <>No running job would be served better by another size.</>;
  return (
    <>
      Best move that was not made: <JobLink id={best.job_id} name={best.job_name} /> {change(best.from_gpus, best.to_gpus, count)} GPUs,{" "}
      {signedPercent(best.gain_pct / 100)} goodput: {reason(best)}, {best.detail}.
    </>
  );
}

/** What was not kept or not looked at; nothing where all was. */
export function Exceptions({ plan }: { plan: Plan }) {
  const { relaxed = [], left_out: jobs = [], nodes_left_out: nodes = [] } = plan;
  if (relaxed.length + jobs.length + nodes.length === 0) return null;
  return (
    <Box title="Exceptions" id="plan-exceptions" className="span-12">
      <div className="plan-exceptions">
        <Some name="Rules that could not be kept" of={relaxed} show={(one) => <strong>{one.rule}</strong>} />
        <Some name="Jobs left as they are" of={jobs} show={(one) => <JobLink id={one.job_id} name={one.job_name} />} />
        <Some name="Nodes left out: nothing starts there" of={nodes} show={(one) => <NodeLink node={one.node_id} name={one.node_name} />} />
      </div>
    </Box>
  );
}

const FEW = 8;

function Some<T extends { reason: string }>({ name, of, show }: { name: string; of: readonly T[]; show: (one: T) => ReactNode }) {
  const [all, setAll] = useState(false);
  if (of.length === 0) return null;
  return (
    <section>
      <h3>
        <span className="warn" aria-hidden>
          ▲
        </span>{" "}
        {name} <span className="muted">({count(of.length)})</span>
      </h3>
      <ul className="plan-list">
        {of.slice(0, all ? of.length : FEW).map((one, index) => (
          <li key={index}>
            {show(one)} <span className="muted">{one.reason}</span>
          </li>
        ))}
      </ul>
      {of.length > FEW && (
        <button className="link" onClick={() => setAll(!all)}>
          {all ? "only some" : `all ${count(of.length)}`}
        </button>
      )}
    </section>
  );
}
