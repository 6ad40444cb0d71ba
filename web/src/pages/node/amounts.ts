// Amounts of hardware as people read them.

const GIB = 2 ** 30;

/** 85899345920 → "80 GiB", 1.5 TiB as "1,536 GiB": one unit, so that two of them compare. */
export function gib(bytes: number | null | undefined): string {
  return bytes == null ? "–" : `${inGib(bytes)} GiB`;
}

/** "71 of 80 GiB". */
export function ofGib(used: number | null | undefined, all: number): string {
  return used == null ? `– of ${gib(all)}` : `${inGib(used)} of ${gib(all)}`;
}

function inGib(bytes: number): string {
  const amount = bytes / GIB;
  return Intl.NumberFormat("en", { maximumFractionDigits: amount < 10 ? 1 : 0 }).format(amount);
}

/** 61.4 → "61 °C". */
export function withUnit(value: number | null | undefined, unit: string): string {
  return value == null ? "–" : `${Math.round(value)} ${unit}`;
}

interface Spread<T> {
  least: T;
  most: T;
}

/** Who has the least and the most of something that is measured; `undefined` where fewer than two tell it. */
export function spread<T>(rows: readonly T[], of: (row: T) => number | null | undefined): Spread<T> | undefined {
  const known = rows.filter((row) => of(row) != null);
  if (known.length < 2) return undefined;
  const sorted = known.sort((one, other) => of(one)! - of(other)!);
  return { least: sorted[0]!, most: sorted.at(-1)! };
}
