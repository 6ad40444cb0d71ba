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
