// Rows of usage brought into the shapes that reports show. Usage is told whole, not in pages, so that sums of it are sums. Pure.

import { stepsSince } from "../../chart/grid";
import type { Project, Usage, UsageRow } from "./asked";

export interface Line {
  name: string;
  total: number;
  byCause: Map<string, number>;
}

/** A line for each value, the most GPU-time first. */
export function pivot(rows: readonly UsageRow[], nameOf: (row: UsageRow) => string | null | undefined): Line[] {
  const lines = new Map<string, Line>();
  for (const row of rows) {
    const name = nameOf(row) ?? "–";
    const line = lines.get(name) ?? { name, total: 0, byCause: new Map<string, number>() };
    lines.set(name, line);
    line.total += row.gpu_hours;
    const cause = row.cause ?? "";
    line.byCause.set(cause, (line.byCause.get(cause) ?? 0) + row.gpu_hours);
  }
  return [...lines.values()].sort((one, other) => other.total - one.total);
}

export function sumOf(rows: readonly UsageRow[], fits: (row: UsageRow) => boolean): number {
  return rows.reduce((sum, row) => sum + (fits(row) ? row.gpu_hours : 0), 0);
}

export interface Capacity {
  gpuHours: number;
  /** Steps of which it is known, of all that the span has. */
  known: number;
  steps: number;
}

/** Time of healthy GPUs over a span that was asked for in steps. */
export function capacityOf(usage: Usage): Capacity | undefined {
  const { steps, step_seconds: step } = usage;
  if (!steps || !step) return undefined;
  const count = Math.ceil(Date.parse(usage.to) / 1_000 / step) - Math.floor(Date.parse(usage.from) / 1_000 / step);
  const known = steps.flatMap((one) => (one.healthy_gpu_hours == null ? [] : [one.healthy_gpu_hours]));
  return { gpuHours: known.reduce((sum, one) => sum + one, 0), known: known.length, steps: count };
}

export interface Course {
  /** Seconds since 1970. */
  times: number[];
  healthy: (number | null)[];
  byCause: Map<string, (number | null)[]>;
}

/** GPUs by cause over time, as means of each step. A step that is not told is a gap. */
export function courseOf(usage: Usage): Course {
  const { steps = [], step_seconds: step } = usage;
  if (!step || !steps || steps.length === 0) return { times: [], healthy: [], byCause: new Map() };
  const [from, to] = [Date.parse(usage.from) / 1_000, Date.parse(usage.to) / 1_000];
  const told = new Map(steps.map((one) => [Date.parse(one.at) / 1_000, one]));
  const times = stepsSince(usage.from, usage.to, step, steps);
  // Of the first and the last step only what lies within the span counts.
  const hours = (at: number) => (Math.min(at + step, to) - Math.max(at, from)) / 3_600;
  const causes = new Set(usage.items.map((row) => row.cause ?? ""));
  const value = (at: number, cause: string) => {
    const one = told.get(at);
    return one ? sumOf(one.items, (row) => row.cause === cause) / hours(at) : null;
  };
  return {
    times,
    healthy: times.map((at) => {
      const known = told.get(at)?.healthy_gpu_hours;
      return known == null ? null : known / hours(at);
    }),
    byCause: new Map([...causes].map((cause) => [cause, times.map((at) => value(at, cause))])),
  };
}

export interface FairShare {
  project: Project;
  /** How deep it stands in the tree. */
  depth: number;
  /** Of what it and its siblings may have, by their weights. */
  entitled: number;
  /** Of what it and its siblings have used of late, as the planner counts it; null: none of them has used any. */
  used: number | null;
  /** In the window, sub-projects included. */
  delivered: number;
  useful: number;
  displaced: number;
  /** Of what it and its siblings were given in the window; null: nothing. */
  share: number | null;
}

/** Each project below the one that it is part of, with the shares that the planner holds against each other (docs/planner.md: fair share). */
export function fairness(projects: readonly Project[], rows: readonly UsageRow[]): FairShare[] {
  const names = new Set(projects.map((project) => project.name));
  const parentOf = (project: Project) => (project.parent && names.has(project.parent) ? project.parent : "");
  const children = new Map<string, Project[]>();
  for (const project of projects) children.set(parentOf(project), [...(children.get(parentOf(project)) ?? []), project]);
  const own = (name: string, cause?: string) => sumOf(rows, (row) => row.project === name && (cause === undefined || row.cause === cause));
  const tree = (name: string, cause?: string): number =>
    own(name, cause) + (children.get(name) ?? []).reduce((sum, child) => sum + tree(child.name, cause), 0);
  const below = (parent: string, depth: number): FairShare[] => {
    const siblings = children.get(parent) ?? [];
    const weights = siblings.reduce((sum, one) => sum + Math.max(0, one.weight), 0);
    const used = siblings.reduce((sum, one) => sum + one.decayed_gpu_hours, 0);
    const delivered = siblings.reduce((sum, one) => sum + tree(one.name), 0);
    return siblings.flatMap((project) => [
      {
        project,
        depth,
        entitled: weights > 0 ? Math.max(0, project.weight) / weights : 0,
        used: used > 0 ? project.decayed_gpu_hours / used : null,
        delivered: tree(project.name),
        useful: tree(project.name, "useful"),
        displaced: tree(project.name, "displaced"),
        share: delivered > 0 ? tree(project.name) / delivered : null,
      },
      ...below(project.name, depth + 1),
    ]);
  };
  return below("", 0);
}

/** Jain's index of what the outermost projects were given over what they are entitled to: 1 if all alike; undefined for fewer than two. */
export function jain(shares: readonly FairShare[]): number | undefined {
  const ratios = shares.filter((one) => one.depth === 0 && one.entitled > 0 && one.share !== null).map((one) => (one.share ?? 0) / one.entitled);
  const squares = ratios.reduce((sum, one) => sum + one * one, 0);
  if (ratios.length < 2 || squares === 0) return undefined;
  return ratios.reduce((sum, one) => sum + one, 0) ** 2 / (ratios.length * squares);
}

export interface Pair {
  name: string;
  before: number;
  now: number;
}

/** Two windows side by side, the most GPU-time of the later one first. */
export function pairs(before: readonly Line[], now: readonly Line[]): Pair[] {
  const [then, later] = [before, now].map((lines) => new Map(lines.map((line) => [line.name, line.total]))) as [Map<string, number>, Map<string, number>];
  const names = [...new Set([...later.keys(), ...then.keys()])];
  return names
    .map((name) => ({ name, before: then.get(name) ?? 0, now: later.get(name) ?? 0 }))
    .sort((one, other) => other.now - one.now || other.before - one.before);
}
