// An address for a line of output: when it was written, by which rank, and a mark of what it says. Lines have no numbers that last: files are
// cut at their beginning, and ranks are read side by side. Pure.

import { type Entry, TOGETHER_MS } from "./lines";

export interface Place {
  /** Milliseconds since 1970. */
  at: number;
  rank: number;
  mark: string;
}

/** "2026-12-24T18:00:00.000Z.3.1k2j3h"; undefined for what nobody noted the time of, and for what is no rank's. */
export function addressOf({ line }: Entry): string | undefined {
  if (line.at === null || line.rank === null) return undefined;
  return `${new Date(line.at).toISOString()}.${line.rank}.${markOf(line.text)}`;
}

export function placeOf(address: string | undefined): Place | undefined {
  const parts = /^(.+Z)\.(\d+)\.([0-9a-z]+)$/.exec(address ?? "");
  const at = Date.parse(parts?.[1] ?? "");
  return parts && Number.isFinite(at) ? { at, rank: Number(parts[2]), mark: parts[3]! } : undefined;
}

/** Which entry it is, by index: the line itself, or the one that it was folded into; -1 where it is not among them. */
export function indexOf(entries: readonly Entry[], place: Place): number {
  let folded = -1;
  for (const [index, { line, ranks }] of entries.entries()) {
    if (line.at === null || Math.abs(line.at - place.at) > TOGETHER_MS || !ranks.includes(place.rank) || markOf(line.text) !== place.mark) continue;
    if (line.at === place.at && line.rank === place.rank) return index;
    if (folded < 0) folded = index;
  }
  return folded;
}

/** FNV-1a of 32 bits. */
function markOf(text: string): string {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return (hash >>> 0).toString(36);
}
