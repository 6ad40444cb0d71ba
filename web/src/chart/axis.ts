// Where the marks of an axis stand: at round values, and at round times of the day. Pure.

/** Round values from 0 to a maximum, about so many. */
export function valueTicks(most: number, about = 4): number[] {
  if (!(most > 0) || !Number.isFinite(most)) return [0];
  const rough = most / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((times) => times * power >= rough) ?? 10) * power;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => index * step);
}

/** 1, 2 and 5 times the powers of ten between two values above zero; powers alone where these are many. */
export function logTicks(least: number, most: number): number[] {
  if (!(least > 0) || !(most >= least) || !Number.isFinite(most)) return [];
  const [first, last] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
  const times = last - first > 3 ? [1] : [1, 2, 5];
  const all: number[] = [];
  for (let power = first; power <= last; power++) all.push(...times.map((one) => one * 10 ** power));
  return all.filter((tick) => tick >= least && tick <= most);
}

/** A time among others: with its day where they are of several. */
export function momentOf(at: number, among: readonly number[]): string {
  const [date, first, last] = [at, among[0] ?? at, among[among.length - 1] ?? at].map((seconds) => new Date(seconds * 1_000)) as [Date, Date, Date];
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return first.toDateString() === last.toDateString() ? time : `${date.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

const UNITS = [1, 2, 5, 10, 15, 30, 60, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800];
const DAY = 86_400;

/** Round times of the reader's zone between two, in seconds since 1970, at most so many. */
export function timeTicks(from: number, to: number, most: number): { at: number; text: string }[] {
  const unit = UNITS.find((one) => (to - from) / one <= most) ?? UNITS[UNITS.length - 1]!;
  const zone = new Date(from * 1_000).getTimezoneOffset() * 60;
  const ticks: { at: number; text: string }[] = [];
  for (let at = Math.ceil((from - zone) / unit) * unit + zone; at <= to; at += unit) {
    const date = new Date(at * 1_000);
    const midnight = date.getHours() === 0 && date.getMinutes() === 0;
    const day = unit >= DAY || (midnight && to - from > DAY / 2);
    const text = day
      ? date.toLocaleDateString([], { day: "numeric", month: "short" })
      : date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(unit < 60 ? { second: "2-digit" } : {}), hour12: false });
    ticks.push({ at, text });
  }
  return ticks;
}
