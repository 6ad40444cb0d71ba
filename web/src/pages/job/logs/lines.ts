// Lines of a job's output as the server sends them, made harmless, folded where ranks say the same, and asked which rank has fallen silent. Pure.

export interface Line {
  /** Milliseconds since 1970, to a few seconds; null where nobody noted it. */
  at: number | null;
  /** Null: said by the server, of the output. */
  rank: number | null;
  text: string;
}

/** Longer lines are cut on the screen; the download has them whole. */
const LONGEST = 4_000;

// Operating system commands, device control strings, control sequences, and what else begins with ESC.
const ESCAPES = /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?/g;
// What would ring, move, hide or turn text round: control characters but the tab, line separators, marks of direction.
const UNSEEN = /[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** What a person may see of a line: no colours, and of what was overwritten in place the last. */
export function plain(raw: string): string {
  const written = raw.replace(ESCAPES, "").replace(/\r+$/, "");
  const seen = written.slice(written.lastIndexOf("\r") + 1).replace(UNSEEN, "�");
  return seen.length > LONGEST ? `${seen.slice(0, LONGEST)} … (${seen.length - LONGEST} more characters: download the log)` : seen;
}

const TIMED = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|-) /;
const RANKED = /^\[rank (\d+)\] /;

/** `ranks`: those that were asked for; of several each line names its own. */
export function readLine(raw: string, ranks: readonly number[]): Line {
  const timed = TIMED.exec(raw);
  let rest = timed ? raw.slice(timed[0].length) : raw;
  let rank = ranks.length === 1 ? ranks[0]! : null;
  if (ranks.length !== 1) {
    const ranked = RANKED.exec(rest);
    if (ranked) {
      rank = Number(ranked[1]);
      rest = rest.slice(ranked[0].length);
    }
  }
  if (!timed) return { at: null, rank: null, text: plain(raw) };
  return { at: timed[1] === "-" ? null : Date.parse(timed[1]!), rank, text: plain(rest) };
}

/** A line, and the ranks that have said the same at about the same time. */
export interface Entry {
  line: Line;
  ranks: number[];
}

/** Times are told to a few seconds. */
export const TOGETHER_MS = 10_000;

/** Folds and filters lines as they come: cost is that of the new ones. */
export class Fold {
  /** Those that are shown, in their order. */
  readonly entries: Entry[] = [];
  /** How many the filter lets not through. */
  hidden = 0;
  /** Whether one of those that are shown tells of an error. */
  failing = false;
  private taken = 0;
  private readonly newest = new Map<string, Entry>();

  constructor(
    private readonly folds: boolean,
    private readonly shows?: (text: string) => boolean,
  ) {}

  /** All lines there are; those that it knows it does not look at again. */
  take(lines: readonly Line[]) {
    for (; this.taken < lines.length; this.taken++) this.add(lines[this.taken]!);
  }

  private add(line: Line) {
    const { rank, text } = line;
    const known = this.folds && rank !== null && text.trim() !== "" ? this.newest.get(text) : undefined;
    if (known && rank !== null && !known.ranks.includes(rank) && together(known.line.at, line.at)) {
      known.ranks.push(rank);
      return;
    }
    const entry = { line, ranks: rank === null ? [] : [rank] };
    if (this.folds && rank !== null) this.newest.set(text, entry);
    if (this.shows && !this.shows(text)) {
      this.hidden++;
      return;
    }
    this.entries.push(entry);
    this.failing ||= toneOf(text) === "bad";
  }
}

function together(one: number | null, other: number | null): boolean {
  return one === null || other === null || Math.abs(one - other) <= TOGETHER_MS;
}

/** Who of the ranks did not say what most of them said; empty where it was said by half of them or fewer. */
export function missing(entry: Entry, ranks: readonly number[]): number[] {
  if (entry.ranks.length * 2 <= ranks.length) return [];
  const said = new Set(entry.ranks);
  return ranks.filter((rank) => !said.has(rank));
}

export interface Silence {
  /** Fewer than half of all. */
  ranks: number[];
  /** When the others said their last, in the middle of them. */
  othersAt: number;
}

/** Which ranks have said nothing since the others' last line. Where most never say anything nothing can be told, and nothing is. */
export function silence(ranks: readonly number[], last: ReadonlyMap<number, number>, marginMs: number): Silence | undefined {
  const times = ranks.flatMap((rank) => last.get(rank) ?? []).sort((one, other) => one - other);
  if (ranks.length < 2 || times.length * 2 <= ranks.length) return undefined;
  const othersAt = times[Math.floor(times.length / 2)]!;
  const behind = ranks.filter((rank) => (last.get(rank) ?? Number.NEGATIVE_INFINITY) < othersAt - marginMs);
  return behind.length > 0 && behind.length * 2 < ranks.length ? { ranks: behind, othersAt } : undefined;
}

/** "3, 17–19". */
export function spans(ranks: readonly number[]): string {
  const parts: string[] = [];
  for (let at = 0; at < ranks.length; ) {
    let end = at;
    while (end + 1 < ranks.length && ranks[end + 1] === ranks[end]! + 1) end++;
    parts.push(end === at ? `${ranks[at]}` : `${ranks[at]}${end === at + 1 ? ", " : "–"}${ranks[end]}`);
    at = end + 1;
  }
  return parts.join(", ");
}

// Names of exceptions end so, as in "RuntimeError".
const ERROR = /(error|exception)\b|\b(traceback|fatal|panic|segfault|killed|nan)\b/i;
const WARNING = /warn(ing)?\b/i;

export function toneOf(text: string): "bad" | "warn" | undefined {
  return ERROR.test(text) ? "bad" : WARNING.test(text) ? "warn" : undefined;
}

/** What a filter lets through: text as it is written, or `/a pattern/`. A string: why the pattern is none. */
export function filterOf(q: string | undefined): ((text: string) => boolean) | string | undefined {
  if (!q) return undefined;
  const pattern = /^\/(.+)\/$/.exec(q)?.[1];
  if (pattern === undefined) {
    const wanted = q.toLowerCase();
    return (text) => text.toLowerCase().includes(wanted);
  }
  try {
    const regex = new RegExp(pattern, "i");
    return (text) => regex.test(text);
  } catch (error) {
    return (error as Error).message;
  }
}
