// Where nothing was measured. Pure.

import type { Values } from "./stacked";

/** Spans of an axis in which no line knows anything: from what is known before to what is known next. */
export function gaps(times: readonly number[], lines: readonly Values[], from: number, to: number): [number, number][] {
  const known = times.filter((_, index) => lines.some((values) => values[index] != null));
  if (known.length === 0) return to > from ? [[from, to]] : [];
  const found: [number, number][] = [];
  const usual = spacing(known);
  const [first, last] = [known[0]!, known[known.length - 1]!];
  // The next measurement is always still to come: only what has waited for longer is missing.
  if (first - from > 2 * usual) found.push([from, first]);
  let before: number | undefined;
  times.forEach((at, index) => {
    const here = lines.some((values) => values[index] != null);
    if (!here) return;
    if (before !== undefined && index - before > 1) found.push([times[before]!, at]);
    before = index;
  });
  if (to - last > 2 * usual) found.push([last, to]);
  return found;
}

/** How far apart measurements usually lie. */
function spacing(known: readonly number[]): number {
  const steps = known.slice(1).map((at, index) => at - known[index]!);
  return steps.sort((one, other) => one - other)[Math.floor(steps.length / 2)] ?? 0;
}

/** Known values that have none beside them, by index: no line shows them. */
export function alone(values: Values): number[] {
  const known = (index: number) => values[index] != null;
  return [...values.keys()].filter((index) => known(index) && !known(index - 1) && !known(index + 1));
}
