// Series on common times: each point stands for a step that begins at a whole multiple of the step's length; where there is none is a gap.

/** Where the steps of a span begin, in seconds since 1970. */
export function stepsOf(from: string, to: string, stepSeconds: number): number[] {
  const first = Math.floor(Date.parse(from) / 1_000 / stepSeconds) * stepSeconds;
  const end = Date.parse(to) / 1_000;
  const times: number[] = [];
  for (let at = first; at < end; at += stepSeconds) times.push(at);
  return times;
}

/** The value of each time by the step that it lies in; the series' own steps may be longer than those of the times. */
export function onSteps<T extends { at: string }>(
  points: readonly T[],
  stepSeconds: number,
  times: readonly number[],
  value: (point: T) => number | null | undefined,
): (number | null)[] {
  const known = new Map(points.map((point) => [Math.floor(Date.parse(point.at) / 1_000 / stepSeconds), value(point) ?? null]));
  return times.map((at) => known.get(Math.floor(at / stepSeconds)) ?? null);
}

/** So many steps are drawn at least. */
const LEAST = 12;

/** The same, from the first point on where most steps lie before it: what began of late would be a sliver at the edge. Points rise in time. */
export function stepsSince(from: string, to: string, stepSeconds: number, points: readonly { at: string }[]): number[] {
  const times = stepsOf(from, to, stepSeconds);
  const first = points[0] ? Date.parse(points[0].at) / 1_000 : Number.NEGATIVE_INFINITY;
  const before = times.filter((at) => at + stepSeconds <= first).length;
  return before * 2 > times.length ? times.slice(Math.max(0, Math.min(before, times.length - LEAST))) : times;
}
