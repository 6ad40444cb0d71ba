// Layers on each other as paths: constant within each step, and interrupted where nothing is known. Pure.

export type Values = readonly (number | null)[];

export interface Plot {
  /** Beginning of step `index`, and end of the one before, in pixels. */
  x: (index: number) => number;
  y: (value: number) => number;
}

/** Lower and upper edge of each layer; what a layer does not know adds nothing. */
export function edges(layers: readonly Values[], steps: number): { low: number[]; high: number[] }[] {
  let below = new Array<number>(steps).fill(0);
  return layers.map((values) => {
    const low = below;
    const high = low.map((under, index) => under + (values[index] ?? 0));
    below = high;
    return { low, high };
  });
}

/** Where a value is known without a break: first index, and the one after the last. */
export function runs(values: Values): [number, number][] {
  const found: [number, number][] = [];
  let begin: number | undefined;
  for (let index = 0; index <= values.length; index++) {
    const known = index < values.length && values[index] !== null;
    if (known) begin ??= index;
    else if (begin !== undefined) {
      found.push([begin, index]);
      begin = undefined;
    }
  }
  return found;
}

/** Steps of which none of the layers and lines knows anything: first index, and the one after the last. */
export function unknown(all: readonly Values[], steps: number): [number, number][] {
  return runs(Array.from({ length: steps }, (_, index) => (all.some((values) => values[index] != null) ? null : 0)));
}

const at = (pixels: number) => pixels.toFixed(1);

/** The steps of a line. */
export function linePath(values: Values, { x, y }: Plot): string {
  const run = ([begin, end]: [number, number]) => {
    let path = `M${at(x(begin))} ${at(y(values[begin] ?? 0))}`;
    for (let index = begin; index < end; index++) path += `V${at(y(values[index] ?? 0))}H${at(x(index + 1))}`;
    return path;
  };
  return runs(values).map(run).join("");
}

/** What lies between two edges, where the values are known. */
export function areaPath(values: Values, low: readonly number[], high: readonly number[], { x, y }: Plot): string {
  const run = ([begin, end]: [number, number]) => {
    let path = `M${at(x(begin))} ${at(y(high[begin]!))}`;
    for (let index = begin; index < end; index++) path += `V${at(y(high[index]!))}H${at(x(index + 1))}`;
    for (let index = end - 1; index >= begin; index--) path += `V${at(y(low[index]!))}H${at(x(index))}`;
    return `${path}Z`;
  };
  return runs(values).map(run).join("");
}
