// The order of the jobs' list: the server's names of it, and how a table shows them.

/** What only jobs that have not ended are sorted by. */
const LIVE_ONLY: ReadonlySet<string> = new Set(["priority", "gpus", "goodput", "progress", "lost", "eta", "position"]);
const ALWAYS: ReadonlySet<string> = new Set(["submitted", "name", "owner", "project", "ended"]);
/** The server begins with the most of these; a table calls that descending. */
const MOST_FIRST: ReadonlySet<string> = new Set(["priority", "gpus", "goodput", "progress", "lost"]);
/** If nothing else is asked for: the newest first, which is the least age. */
const USUAL = "submitted";

export const LIVE_STATES = ["queued", "held", "starting", "running", "stopping"] as const;
export const FINAL_STATES = ["succeeded", "failed", "cancelled"] as const;
const ENDED: ReadonlySet<string> = new Set(["ended", ...FINAL_STATES]);

const keyOf = (sort: string) => sort.replace(/^-/, "");
const turned = (sort: string) => (sort.startsWith("-") ? sort.slice(1) : `-${sort}`);

/** The states of the URL, one by one or as the groups `live` and `ended`; what is none is left out. */
export function statesOf(state: string | undefined): string[] {
  const known: readonly string[] = [...LIVE_STATES, ...FINAL_STATES, "live", "ended"];
  return (state ?? "").split(",").filter((one) => known.includes(one));
}

/** Of these what a job could be in that had not ended; all of them where only a group is named. */
export function liveOnes(states: readonly string[]): string[] {
  return states.filter((state) => state !== "live" && !ENDED.has(state));
}

/** Whether all jobs of these states have yet to end. */
export function allLive(states: readonly string[]): boolean {
  return states.length > 0 && !states.some((one) => ENDED.has(one));
}

/** The order that the server is asked for: none that it would refuse for these states. */
export function asked(sort: string | undefined, states: readonly string[]): string | undefined {
  if (sort === undefined) return undefined;
  const key = keyOf(sort);
  return ALWAYS.has(key) || (LIVE_ONLY.has(key) && allLive(states)) ? sort : undefined;
}

/** As a table shows it: with a `-` where it descends. */
export function shown(sort: string | undefined): string {
  const order = sort ?? USUAL;
  return MOST_FIRST.has(keyOf(order)) ? turned(order) : order;
}

/** After a press on a column's header: its usual order first, then turned round. What only live jobs are sorted by shows live jobs alone. */
export function pressed(column: string, sort: string | undefined, states: readonly string[]): { sort: string | undefined; state: string | undefined } {
  const key = keyOf(column);
  const next = (sort ?? USUAL) === key ? `-${key}` : key;
  const state = LIVE_ONLY.has(key) && !allLive(states) ? "live" : states.join(",") || undefined;
  return { sort: next === USUAL ? undefined : next, state };
}

/** After a press on a state's count: that state beside those chosen, or no more; groups stand alone. */
export function toggled(state: string, states: readonly string[]): string | undefined {
  if (states.includes(state)) return states.filter((one) => one !== state).join(",") || undefined;
  const group = (one: string) => one === "live" || one === "ended";
  if (group(state) || states.some(group)) return state;
  return [...states, state].join(",");
}
