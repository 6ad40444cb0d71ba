// Useful FLOP/s as a share of what the hardware could do, with the hardware that it is a share of.

import type { ReactNode } from "react";
import type { Overview } from "../../api/client";
import { count, fixed } from "../../lib/format";
import { type Delta, Tile } from "../../parts/Tile";

interface Props {
  now: Overview;
  title: ReactNode;
  testId: string;
  spark?: { values: (number | null)[]; label: string } | undefined;
  delta?: Delta | undefined;
  children?: ReactNode;
}

export function MfuTile({ now, ...tile }: Props) {
  const { goodput_mfu: mfu, gpus_healthy: healthy, nodes_available: there, nodes_total: nodes } = now;
  if (mfu == null) return <Tile {...tile} value="–" note="the peak of a GPU type, or the shape of a job, is not known" />;
  // The peak is that of nodes that are there; only where all are it is that of all healthy GPUs.
  const of = there === nodes ? `${count(healthy)} healthy GPUs` : `the healthy GPUs on ${count(there)} of ${count(nodes)} nodes`;
  return <Tile {...tile} value={fixed(mfu * 100, 1)} unit="%" note={`useful FLOP/s of the peak of ${of}`} />;
}
