// The GPUs of a node: what each does and for whom, what is measured of it, and what has befallen it.

import { Link } from "@tanstack/react-router";
import type { components } from "../../api/schema";
import { Activity } from "../../parts/Activity";
import { type Column, DataTable } from "../../parts/DataTable";
import { JobLink, Middle } from "../../parts/Name";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";
import { ofGib, spread, withUnit } from "./amounts";

type Gpus = components["schemas"]["NodeGpus"];
type Gpu = components["schemas"]["GpuDetail"];

const BUSY = "Share of the ten seconds before in which some kernel ran: not how much of the GPU did work";

const COLUMNS: Column<Gpu>[] = [
  { id: "index", header: "GPU", cell: (gpu) => <span title={gpu.uuid}>{gpu.index}</span>, width: "46px", number: true },
  { id: "activity", header: "Does", cell: (gpu) => <Activity activity={gpu.activity} />, width: "116px" },
  { id: "job", header: "Job", cell: (gpu) => gpu.job_id && <JobLink id={gpu.job_id} name={gpu.job_name ?? null} /> },
  { id: "busy", header: "Busy", cell: (gpu) => withUnit(gpu.utilisation_pct, "%"), width: "60px", number: true, from: "tablet", hint: BUSY },
  {
    id: "memory",
    header: "Memory",
    cell: (gpu) => ofGib(gpu.memory_used_bytes, gpu.memory_bytes),
    width: "124px",
    number: true,
    from: "tablet",
    hint: "Used, by whomever",
  },
  { id: "heat", header: "Heat", cell: (gpu) => withUnit(gpu.temperature_celsius, "°C"), width: "64px", number: true, from: "tablet" },
  { id: "power", header: "Power", cell: (gpu) => withUnit(gpu.power_watts, "W"), width: "74px", number: true, from: "desktop" },
  { id: "health", header: "Health", cell: (gpu) => <Wellness gpu={gpu} /> },
];

function Wellness({ gpu }: { gpu: Gpu }) {
  const [newest] = gpu.faults;
  return (
    <span className="row node-wellness">
      {gpu.healthy ? (
        <span className="good nowrap">✓ healthy</span>
      ) : (
        <span className="bad named">
          ✕ <Middle text={gpu.broken_cause ?? "broken"} />
        </span>
      )}
      {newest && (
        <Link to="/events" search={{ event: String(newest.seq) }} title={newest.message} className="nowrap">
          {newest.healed ? "healed" : newest.xid != null ? `XID ${newest.xid}` : "broke"} <Ago at={newest.at} />
          {gpu.faults.length > 1 && `, ${gpu.faults.length} in the log`}
        </Link>
      )}
    </span>
  );
}

interface Props {
  asked: Asked<Gpus>;
  className: string;
}

export function Gpus({ asked, className }: Props) {
  return (
    <Panel
      title="GPUs"
      id="node-gpus"
      className={className}
      note={asked.data && `${asked.data.gpus.length} of type ${asked.data.gpu_type}`}
      asked={asked}
      height={260}
    >
      {({ gpus }) =>
        gpus.length === 0 ? (
          <Empty>Its agent tells of no GPUs. Look at its log: the driver may be missing.</Empty>
        ) : (
          <div className="stack">
            <DataTable label="GPUs of the node" rows={gpus} columns={COLUMNS} keyOf={(gpu) => gpu.uuid} over={(gpu) => !gpu.healthy} testId="node-gpu-table" />
            <Measured gpus={gpus} />
          </div>
        )
      }
    </Panel>
  );
}

/** Who stands out, and how old the measurements are. */
function Measured({ gpus }: { gpus: Gpu[] }) {
  const times = gpus.flatMap((gpu) => (gpu.measured_at ? [gpu.measured_at] : [])).sort();
  if (times.length === 0) {
    return <p className="muted">Nothing is measured: the driver tells none of it, the GPUs are emulated, or the agent is not connected.</p>;
  }
  const heat = spread(gpus, (gpu) => gpu.temperature_celsius);
  const busy = spread(
    gpus.filter((gpu) => gpu.activity === "training"),
    (gpu) => gpu.utilisation_pct,
  );
  return (
    <p className="muted">
      Measured <Ago at={times[0]!} /> on {times.length} of {gpus.length} GPUs.
      {heat && ` Hottest: GPU ${heat.most.index}, ${withUnit(heat.most.temperature_celsius, "°C")} (least ${withUnit(heat.least.temperature_celsius, "°C")}).`}
      {busy && ` Least busy of those that train: GPU ${busy.least.index}, ${withUnit(busy.least.utilisation_pct, "%")} (most ${withUnit(busy.most.utilisation_pct, "%")}).`}
    </p>
  );
}
