// How a cell looks: by its job, by what it does, by how busy it is, or by how its node is. Looks are numbered, so that what has changed is seen at
// a glance over two arrays.

import { type Texture as JobTexture, TEXTURES, category, textureOf } from "../../lib/colour";
import { ACTIVITIES, type Activity, type Fleet, HEALTHS, type Health } from "./fleet";

export type ColourBy = "job" | "activity" | "utilisation" | "health";

export interface Look {
  fill: string;
  /** Of a line around it. */
  edge?: string;
  texture?: Texture;
  /** Of what is written on it. */
  ink: string;
  /** What is broken is crossed out as well. */
  crossed?: boolean;
}

/** A job's, or `hatch`: nothing is known. */
export type Texture = JobTexture | "hatch";
const CATEGORIES = 8;

/** The theme's colours, as canvas takes them. */
export interface Theme {
  panel: string;
  raised: string;
  line: string;
  edge: string;
  text: string;
  muted: string;
  accent: string;
  good: string;
  warn: string;
  bad: string;
  hatch: string;
  categories: string[];
}

export function readTheme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    ...{ panel: of("panel"), raised: of("raised"), line: of("line"), edge: of("edge"), text: of("text"), muted: of("muted") },
    ...{ accent: of("accent"), good: of("good"), warn: of("warn"), bad: of("bad"), hatch: of("hatch") },
    categories: Array.from({ length: CATEGORIES }, (_, at) => of(`c${at}`)),
  };
}

/** Cividis: even steps of lightness for every common colour vision. */
export const CIVIDIS = [
  ...["#00224e", "#123570", "#3b496c", "#575d6d", "#707173"],
  ...["#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"],
] as const;

// Numbers of looks: jobs, then what GPUs do, then steps of utilisation and that it is not known, then classes of nodes.
const DOES = CATEGORIES * TEXTURES.length;
const BUSY = DOES + ACTIVITIES.length;
const NOT_MEASURED = BUSY + CIVIDIS.length;
const STANDS = NOT_MEASURED + 1;

/** All looks, each at its number. */
export function looks(theme: Theme): Look[] {
  const jobs = theme.categories.flatMap((fill) => TEXTURES.map((texture) => ({ fill, texture, ink: inkOn(fill) })));
  const steps = CIVIDIS.map((fill) => ({ fill, ink: inkOn(fill), ...(contrast(fill, theme.panel) < 3 ? { edge: theme.edge } : {}) }));
  const unknown: Look = { fill: theme.panel, edge: theme.line, texture: "hatch", ink: theme.text };
  return [...jobs, ...ACTIVITIES.map((activity) => activityLook(activity, theme)), ...steps, unknown, ...HEALTHS.map((health) => healthLook(health, theme))];
}

export function activityLook(activity: Activity, theme: Theme): Look {
  const solid = (fill: string): Look => ({ fill, ink: inkOn(fill) });
  const open = (edge: string, texture: Texture = "plain"): Look => ({ fill: theme.panel, edge, texture, ink: theme.text });
  switch (activity) {
    case "training":
      return solid(theme.good);
    case "starting":
      return solid(theme.categories[1]!);
    case "stopping":
      return solid(theme.categories[3]!);
    case "idle_waiting":
      return open(theme.warn);
    case "withheld":
      return open(theme.muted, "hatch");
    case "reserved":
      return open(theme.warn, "hatch");
    case "unreachable":
      return open(theme.bad, "hatch");
    case "broken":
      return { ...solid(theme.bad), crossed: true };
    case "idle_no_demand":
    case "not_held":
      return open(theme.edge);
    case "unknown":
      return open(theme.line, "hatch");
  }
}

function healthLook(health: Health, theme: Theme): Look {
  // On a node that is well but for a broken GPU, that one shows by itself.
  const fills: Record<Health, string> = {
    ...{ well: theme.good, broken: theme.good, suspect: theme.warn },
    ...{ drained: theme.muted, lost: theme.bad, joining: theme.edge },
  };
  return { fill: fills[health], ink: inkOn(fills[health]) };
}

/** The number of each GPU's look. `shares`: of each GPU how much of the time some kernel ran, 0 to 1, or NaN. */
export function lookOf(fleet: Fleet, by: ColourBy, shares: Float32Array | undefined): Uint8Array {
  const found = new Uint8Array(fleet.job.length);
  const jobs = fleet.jobs.map(({ id }) => category(id) * TEXTURES.length + TEXTURES.indexOf(textureOf(id)));
  const broken = ACTIVITIES.indexOf("broken");
  for (let cell = 0; cell < found.length; cell++) {
    const [job, does] = [fleet.job[cell]!, fleet.activity[cell]!];
    if (by === "job") found[cell] = job >= 0 ? jobs[job]! : DOES + does;
    else if (by === "activity" || does === broken) found[cell] = DOES + does;
    else if (by === "health") found[cell] = STANDS + HEALTHS.indexOf(fleet.nodes[fleet.node[cell]!]!.health);
    else found[cell] = busy(shares?.[cell]);
  }
  return found;
}

function busy(share: number | undefined): number {
  if (share === undefined || Number.isNaN(share)) return NOT_MEASURED;
  return BUSY + Math.max(0, Math.min(CIVIDIS.length - 1, Math.floor(share * CIVIDIS.length)));
}

/** Relative luminance of "#rrggbb" (WCAG 2.2). */
function luminance(colour: string): number {
  const part = (at: number) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.040_45 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
}

export function contrast(one: string, other: string): number {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

/** Black or white, whichever is read better on it. */
export function inkOn(fill: string): string {
  return contrast(fill, "#000000") >= contrast(fill, "#ffffff") ? "#000000" : "#ffffff";
}
