// What is free, and how scattered: the largest job that would start now, and how many nodes have so many free.

import { useMemo } from "react";
import type { components } from "../../api/schema";
import { count } from "../../lib/format";
import { type Asked, Panel } from "../../parts/Panel";
import type { Fleet } from "./fleet";
import { type Room, roomOf } from "./room";
import { nodes } from "./words";

type GpuRoom = components["schemas"]["GpuRoom"];

interface Props {
  fleet: Fleet;
  /** What the newest plan leaves; `null` before the first. What the map knows is told without it. */
  asked: Asked<GpuRoom[] | null>;
  className: string;
}

export function FreeBlocks({ fleet, asked, className }: Props) {
  const rooms = useMemo(() => roomOf(fleet), [fleet]);
  if (rooms.length === 0) return null;
  return (
    <Panel title="Free blocks" id="cluster-room" className={className} note="GPUs that jobs could start on now" asked={{ ...asked, data: asked.data ?? null }} everySeconds={15}>
      {() => (
        <>
          <div className="cluster-scroll" tabIndex={0} role="region" aria-label="Free blocks by GPU type">
            <table className="cluster-room" data-testid="cluster-room-table">
              <thead>
                <tr>
                  <th scope="col">Type</th>
                  <th scope="col" className="number">
                    Free
                  </th>
                  <th scope="col" className="number" title="by the newest plan, quotas apart">
                    Largest job that starts at once
                  </th>
                  <th scope="col" className="number">
                    Most in one domain
                  </th>
                  <th scope="col" className="number">
                    On one node
                  </th>
                  <th scope="col">Free on a node × nodes</th>
                </tr>
              </thead>
              <tbody>
                {rooms.map((room) => (
                  <Row key={room.type} room={room} planned={asked.data?.find((one) => one.gpu_type === room.type)} />
                ))}
              </tbody>
            </table>
          </div>
          {asked.data === null && <p className="muted">No round has been planned yet, so that the largest job is not known.</p>}
        </>
      )}
    </Panel>
  );
}

function Row({ room, planned }: { room: Room; planned: GpuRoom | undefined }) {
  const most = Math.max(...room.blocks.map((block) => block.nodes));
  return (
    <tr>
      <th scope="row">{room.type}</th>
      <td className="number">
        {count(room.free)} of {count(room.total)}
      </td>
      <td className="number">
        {planned ? (
          <strong title={planned.gpus_free === room.free ? undefined : `the plan leaves ${count(planned.gpus_free)} free`}>
            {planned.largest === 0 ? "none" : `${count(planned.largest)} GPUs`}
          </strong>
        ) : (
          "–"
        )}
      </td>
      <td className="number" title={room.domain}>
        {count(room.inOneDomain)}
      </td>
      <td className="number">{count(room.onOneNode)}</td>
      <td>
        {room.blocks.length === 0 ? (
          <span className="muted">no node has any</span>
        ) : (
          <ul className="cluster-blocks" aria-label={`Nodes by how many ${room.type} are free`}>
            {room.blocks.map((block) => (
              <li key={block.free} title={`${nodes(block.nodes)} with ${block.free} free`}>
                <i style={{ height: `${Math.max(2, (block.nodes / most) * 18)}px` }} aria-hidden />
                <span>
                  {block.free} × {count(block.nodes)}
                </span>
              </li>
            ))}
          </ul>
        )}
      </td>
    </tr>
  );
}
