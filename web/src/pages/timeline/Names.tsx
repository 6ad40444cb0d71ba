// Names of the lanes that are in sight, as links.

import type { VirtualItem } from "@tanstack/react-virtual";
import { memo } from "react";
import { JobLink, NodeLink } from "../../parts/Name";
import type { Row } from "./rows";

interface Props {
  rows: readonly Row[];
  items: VirtualItem[];
  byNode: boolean;
  width: number;
  marked: number | undefined;
}

export const Names = memo(function Names({ rows, items, byNode, width, marked }: Props) {
  return (
    <ul className="timeline-names" style={{ width }} aria-label={byNode ? "Nodes" : "Jobs"}>
      {items.map((item) => {
        const row = rows[item.index];
        if (!row) return null;
        return (
          <li key={row.id} className={item.index === marked ? "marked" : undefined} style={{ top: item.start, height: item.size }}>
            {byNode ? <NodeLink node={row.id} name={row.name} /> : <JobLink id={row.id} name={row.name} />}
            {row.deleted && <span className="muted"> deleted</span>}
          </li>
        );
      })}
    </ul>
  );
});
