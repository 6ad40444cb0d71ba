// A chain of causes as it is drawn: runs of events that follow one from another, which part where several follow from one. Pure.

import type { components } from "../../api/schema";

export type EventLink = components["schemas"]["EventLink"];

export interface Run {
  /** Each follows from the one before it. */
  links: EventLink[];
  /** What follows from the last, where that is more than one. */
  branches: Run[];
}

/** Of links in the order of the log. */
export function runs(items: readonly EventLink[]): Run[] {
  const known = new Set(items.map((link) => link.event.seq));
  const follow = new Map<number | undefined, EventLink[]>();
  for (const link of items) {
    const cause = link.because_of != null && known.has(link.because_of) ? link.because_of : undefined;
    const others = follow.get(cause);
    if (others) others.push(link);
    else follow.set(cause, [link]);
  }
  const run = (first: EventLink): Run => {
    const links = [first];
    let next = follow.get(first.event.seq) ?? [];
    while (next.length === 1) {
      links.push(next[0]!);
      next = follow.get(next[0]!.event.seq) ?? [];
    }
    return { links, branches: next.map(run) };
  };
  return (follow.get(undefined) ?? []).map(run);
}

/** Whether an event stands in a run or in what follows from it. */
export function holds(run: Run, seq: number): boolean {
  return run.links.some((link) => link.event.seq === seq) || run.branches.some((branch) => holds(branch, seq));
}

/** Branches to show at once: the first, and the one that the event asked of stands in; and the others. */
export function parted(branches: readonly Run[], seq: number, most: number): [Run[], Run[]] {
  const shown = branches.filter((branch, index) => index < most || holds(branch, seq));
  return [shown, branches.filter((branch) => !shown.includes(branch))];
}
