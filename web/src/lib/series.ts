// Series of several jobs on one time axis.

export interface Line {
  name: string;
  colour: string;
  points: { at: number; value: number | null }[];
}

/** Measurements are stored per ten seconds; a longer silence is a gap. */
const GAP_SECONDS = 15;
const STEP_SECONDS = 2;

export interface Aligned {
  times: number[];
  /** One row per line; null where the job was not training. */
  rows: (number | null)[][];
}

/** Samples every line on a common grid: the last value, unless it is too old to speak of. */
export function align(lines: Line[]): Aligned {
  const all = lines.flatMap((line) => line.points.map((point) => point.at));
  if (all.length === 0) return { times: [], rows: lines.map(() => []) };
  const first = Math.floor(Math.min(...all) / STEP_SECONDS) * STEP_SECONDS;
  const last = Math.max(...all);
  const times: number[] = [];
  for (let at = first; at <= last + STEP_SECONDS; at += STEP_SECONDS) times.push(at);
  return { times, rows: lines.map((line) => sample(line, times)) };
}

function sample(line: Line, times: number[]): (number | null)[] {
  const points = [...line.points].sort((a, b) => a.at - b.at);
  let next = 0;
  let latest: { at: number; value: number | null } | undefined;
  return times.map((at) => {
    while (next < points.length && points[next]!.at <= at) latest = points[next++];
    return latest && at - latest.at <= GAP_SECONDS ? latest.value : null;
  });
}

/** Upper edges of the stacked lines, topmost first, as the chart paints them. */
export function stack({ times, rows }: Aligned): (number | null)[][] {
  const edges: (number | null)[][] = [];
  const sum = times.map(() => 0);
  for (const row of rows) {
    edges.push(
      row.map((value, index) => {
        if (value === null) return null;
        sum[index]! += value;
        return sum[index]!;
      }),
    );
  }
  return [times, ...edges.reverse()];
}
