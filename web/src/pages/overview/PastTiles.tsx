// The figures of a past moment, as far as they are kept.

import { Link } from "@tanstack/react-router";
import type { PastOverview } from "../../api/client";
import { count, gpuHours, si } from "../../lib/format";
import { PlanLink } from "../../parts/Name";
import { type Asked, Failed, Panel } from "../../parts/Panel";
import { Tile } from "../../parts/Tile";
import { WINDOWS, type WindowName } from "../../parts/WindowPicker";
import { lost } from "./account";
import type { GoodputLine, Usage } from "./asked";

interface Props {
  overview: Asked<PastOverview>;
  /** The cluster's goodput over the window before. */
  goodput: GoodputLine | undefined;
  ledger: Asked<Usage>;
  window: WindowName;
}

export function PastTiles({ overview, goodput, ledger, window }: Props) {
  const point = goodput?.points.at(-1);
  const { words } = WINDOWS[window];
  const gone = ledger.data && lost(ledger.data);
  return (
    <Panel title="Then" id="tiles" className="span-12" asked={overview} everySeconds={Number.POSITIVE_INFINITY}>
      {(then) => (
        <>
          <div className="tiles">
            <Tile
              testId="tile-goodput"
              title={<Link to="/goodput">Goodput</Link>}
              value={si(point?.goodput_tokens_per_second)}
              unit="reference tokens/s"
              note={point ? `from ${si(point.throughput_tokens_per_second)} raw tokens/s` : "not kept of that moment"}
            />
            <Tile
              testId="tile-gpus"
              title={<Link to="/cluster">GPUs busy</Link>}
              value={count(then.gpus_busy)}
              unit={`of ${count(then.gpus_healthy)} healthy`}
              note={`${count(then.gpus_total)} in all`}
            />
            <Tile
              testId="tile-nodes"
              title={<Link to="/cluster">Nodes</Link>}
              value={count(then.nodes_available)}
              unit={`of ${count(then.nodes_total)} there`}
            />
            <Tile
              testId="tile-waiting"
              title={<Link to="/queue">Waiting</Link>}
              value={count(then.jobs_by_state.queued ?? 0)}
              unit="jobs"
              note={`${count(then.jobs_by_state.running ?? 0)} ran`}
            />
            <Tile
              testId="tile-lost"
              title={
                <Link to="/reports" search={{ tab: "usage", by: "cause" }}>
                  GPU-hours lost
                </Link>
              }
              value={gone ? gpuHours(gone.gpuHours).replace(" GPU-h", "") : "–"}
              unit={ledger.data ? `of ${gpuHours(ledger.data.total_gpu_hours)} that jobs held` : ""}
              note={`in the ${words} before`}
            />
            <Tile
              testId="tile-plan"
              title={<Link to="/plan">Plan</Link>}
              value={then.plans_waiting.length > 0 ? count(then.plans_waiting.length) : then.plan_id ? <PlanLink id={then.plan_id} /> : "none"}
              unit={then.plans_waiting.length > 0 ? "waited for approval" : then.plan_id ? "was carried out" : ""}
            />
          </div>
          {ledger.error && <Failed error={ledger.error} asked={ledger} />}
        </>
      )}
    </Panel>
  );
}
