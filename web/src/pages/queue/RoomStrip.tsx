// What is waited for beside what is free, GPU type by GPU type.

import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { components } from "../../api/schema";
import { count } from "../../lib/format";
import { ReservationNames } from "../../parts/Reservation";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import type { Queue } from "./queries";

type GpuRoom = components["schemas"]["GpuRoom"];

interface Props {
  type: string | undefined;
  onType: (type: string | undefined) => void;
}

export function RoomStrip({ queue, narrowed, ...rest }: Props & { queue: Asked<Queue>; narrowed: boolean }) {
  const note = `by GPU type${narrowed ? ", waited for by what the other filters admit" : ""}; a job that accepts several counts with each of them`;
  return (
    <Panel title="Waited for, and free" note={note} id="room" asked={queue} height={60}>
      {({ room, choices }) =>
        !room ? (
          <Empty>No round has been planned yet, so nobody knows what is free.</Empty>
        ) : room.length === 0 ? (
          <Empty>
            There is no node that a job could run on. One joins with <code>headway node join</code>. <Link to="/cluster">Cluster</Link>
          </Empty>
        ) : (
          <Rooms room={room} waited={choices.by_gpu_type} {...rest} />
        )
      }
    </Panel>
  );
}

function Rooms({ room, waited, type, onType }: Props & { room: readonly GpuRoom[]; waited: Queue["choices"]["by_gpu_type"] }) {
  const most = Math.max(1, ...room.map((one) => one.gpus_free), ...Object.values(waited).map(({ gpus }) => gpus));
  const reserved = room.some((one) => one.gpus_reserved > 0);
  return (
    <div className="queue-rooms" tabIndex={0} role="region" aria-label="Waited for, and free, by GPU type">
      <table>
        <thead>
          <tr>
            <th scope="col">GPU type</th>
            <th scope="col" title="the fewest GPUs that the jobs which wait run on">
              waited for, at least
            </th>
            <th scope="col" title="what the newest plan gives nobody, on nodes that are set aside for nobody">
              free
            </th>
            {reserved && (
              <th scope="col" title="free GPUs of reserved nodes, which jobs without a time limit cannot use">
                reserved
              </th>
            )}
            <th scope="col" title="the largest size that would find room at once, quotas apart">
              largest job that would start
            </th>
          </tr>
        </thead>
        <tbody>
          {room.map((one) => {
            const { jobs, gpus } = waited[one.gpu_type] ?? { jobs: 0, gpus: 0 };
            const chosen = type === one.gpu_type;
            return (
              <tr key={one.gpu_type}>
                <th scope="row">
                  <button
                    className="link queue-type"
                    aria-pressed={chosen}
                    title={chosen ? "show all types again" : `only jobs that accept ${one.gpu_type}`}
                    onClick={() => onType(chosen ? undefined : one.gpu_type)}
                  >
                    {one.gpu_type}
                  </button>
                </th>
                <td>
                  <Amount gpus={gpus} of={most} hollow>
                    by {count(jobs)} {jobs === 1 ? "job" : "jobs"}
                  </Amount>
                </td>
                <td>
                  <Amount gpus={one.gpus_free} of={most} />
                </td>
                {reserved && (
                  <td className="nowrap">
                    {one.gpus_reserved === 0 ? (
                      <span className="muted">none</span>
                    ) : (
                      <>
                        {count(one.gpus_reserved)} GPUs: <ReservationNames names={one.reservations} />
                      </>
                    )}
                  </td>
                )}
                <td className="nowrap">
                  {count(one.largest)} {one.largest === 1 ? "GPU" : "GPUs"}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** A number of GPUs as a bar on the scale of all; hollow where nobody has them. */
function Amount({ gpus, of, hollow, children }: { gpus: number; of: number; hollow?: boolean; children?: ReactNode }) {
  const share = gpus > 0 ? Math.max(1, (gpus / of) * 100) : 0;
  return (
    <span className="queue-amount">
      <span className="queue-amount-track" aria-hidden>
        <i className={hollow ? "hollow" : undefined} style={{ width: `${share}%` }} />
      </span>
      <span className="nowrap">
        {count(gpus)} GPUs <span className="muted">{children}</span>
      </span>
    </span>
  );
}
