// Numbers and times as people read them. An absent number is a dash, never a zero.

import type { Job } from "../api/client";

const SUFFIXES: [number, string][] = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** 1234.5 → "1.23k": three significant digits with SI suffixes. */
export function si(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  const [divisor, suffix] = SUFFIXES.find(([limit]) => Math.abs(value) >= limit) ?? [1, ""];
  const scaled = value / divisor;
  const size = Math.abs(scaled);
  const digits = size >= 100 || (suffix === "" && Number.isInteger(scaled)) ? 0 : size >= 10 ? 1 : 2;
  return `${scaled.toFixed(digits)}${suffix}`;
}

/** 0.4217 → "0.42". */
export function fixed(value: number | null | undefined, digits = 2): string {
  return value == null || !Number.isFinite(value) ? "–" : value.toFixed(digits);
}

/** 0.42 → "42 %", 0.0042 → "0.4 %": what is little is not nothing. */
export function percent(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  const little = Math.abs(value) < 0.01 && Math.abs(value) >= 0.0005;
  return `${little ? (value * 100).toFixed(1) : Math.round(value * 100)} %`;
}

/** 3725 → "1h 02m": the two largest units. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  const total = Math.max(0, Math.round(seconds));
  const [d, h, m, s] = [Math.floor(total / 86400), Math.floor(total / 3600) % 24, Math.floor(total / 60) % 60, total % 60];
  const two = (n: number) => String(n).padStart(2, "0");
  if (d > 0) return `${d}d ${two(h)}h`;
  if (h > 0) return `${h}h ${two(m)}m`;
  if (m > 0) return `${m}m ${two(s)}s`;
  return `${s}s`;
}

/** 0.0123 → "12 ms", 1.23 → "1.2 s": of what takes next to no time. */
export function brief(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1_000)} ms`;
  return seconds < 10 ? `${seconds.toFixed(1)} s` : duration(seconds);
}

/** A day: "27 Oct 2026", as the browser's language writes it. */
export function day(at: string | number): string {
  return new Date(at).toLocaleDateString([], { dateStyle: "medium" });
}

/** Time of day, with seconds. */
export function clock(at: string | number): string {
  return new Date(at).toLocaleTimeString([], { hour12: false });
}

/** Date, time and zone. */
export function absolute(at: string | number): string {
  return new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "long", hour12: false } as Intl.DateTimeFormatOptions);
}

/** 0.421 → "0.4 GPU-h", 41.3 → "41 GPU-h". */
export function gpuHours(hours: number | null | undefined): string {
  if (hours == null || !Number.isFinite(hours)) return "–";
  const digits = Math.abs(hours) >= 100 ? 0 : Math.abs(hours) >= 1 ? 1 : 2;
  return `${Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(hours)} GPU-h`;
}

/** 1622 → "1,622". */
export function count(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value) ? "–" : Intl.NumberFormat("en").format(value);
}

/** 1801.4 → "1,801", 8.746 → "8.75": an amount among others of its unit. */
export function amount(value: number): string {
  return Intl.NumberFormat("en", { minimumFractionDigits: Math.abs(value) < 10 ? 2 : 0, maximumFractionDigits: Math.abs(value) < 10 ? 2 : 0 }).format(value);
}

/** 1.76 → "×1.76": efficiency per token is no share, it is above 1 below the reference batch. */
export function times(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value) ? "–" : `×${value.toFixed(2)}`;
}

/** 0.0123 → "+1.2 %", with a real minus. */
export function signedPercent(share: number | null | undefined): string {
  if (share == null || !Number.isFinite(share)) return "–";
  const percents = share * 100;
  const digits = Math.abs(percents) >= 10 ? 0 : 1;
  return `${percents < 0 ? "−" : "+"}${Math.abs(percents).toFixed(digits)} %`;
}

type Execution = NonNullable<Job["execution"]>;
const STAGES: Record<Execution["sharding"], string> = { none: "", optimizer: "zero1", gradients: "zero2", parameters: "zero3" };
const SCHEDULES: Record<Execution["schedule"], string> = { "1f1b": "", gpipe: "gpipe", breadth_first: "breadth-first" };

/** What a layout is beyond dp, tp and pp, in short: ["vpp2", "zero1", "sp"]. */
export function execution(of: Job["execution"]): string[] {
  if (!of) return [];
  const degrees = [["cp", of.cp], ["ep", of.ep], ["vpp", of.vpp]].map(([name, degree]) => (degree === 1 ? "" : `${name}${degree}`));
  const recompute = of.recompute === "none" ? "" : `${of.recompute}-recompute`;
  const offload = of.offload === "none" ? "" : `${of.offload}-offload`;
  const shares = of.shares ? `shares${of.shares.slower}:${of.shares.faster}` : "";
  const words = [...degrees, SCHEDULES[of.schedule], STAGES[of.sharding], recompute, of.sequence_parallel ? "sp" : "", offload, shares];
  return words.filter((word) => word !== "");
}

/** "dp4 tp1 pp2 zero1"; in short, without what is 1 but dp: "dp4 pp2 zero1". */
export function layoutOf(layout: Job["layout"], how: Job["execution"], short = false): string {
  if (!layout) return "";
  const degrees = [["dp", layout.dp], ["tp", layout.tp], ["pp", layout.pp]] as const;
  const shown = degrees.filter(([name, degree]) => !short || name === "dp" || degree > 1);
  return [...shown.map(([name, degree]) => `${name}${degree}`), ...execution(how)].join(" ");
}
