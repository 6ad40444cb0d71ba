// The theme's colours and hatchings, as canvas takes them.

import { category } from "../../lib/colour";

export interface Colours {
  panel: string;
  raised: string;
  line: string;
  edge: string;
  text: string;
  muted: string;
  accent: string;
  warn: string;
  bad: string;
  job: (id: string) => string;
  /** Lines aslant in a colour. */
  hatch: (colour: string) => CanvasPattern | string;
}

const HATCH = 6;

/** Read once for each theme. */
export function coloursOf(context: CanvasRenderingContext2D): Colours {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const categories = Array.from({ length: 8 }, (_, index) => of(`c${index}`));
  const hatched = new Map<string, CanvasPattern | string>();
  return {
    panel: of("panel"),
    raised: of("raised"),
    line: of("line"),
    edge: of("edge"),
    text: of("text"),
    muted: of("muted"),
    accent: of("accent"),
    warn: of("warn"),
    bad: of("bad"),
    job: (id) => categories[category(id)] ?? of("edge"),
    hatch: (colour) => {
      const known = hatched.get(colour);
      if (known) return known;
      const made = hatching(context, colour);
      hatched.set(colour, made);
      return made;
    },
  };
}

function hatching(context: CanvasRenderingContext2D, colour: string): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = HATCH;
  const pen = tile.getContext("2d");
  if (!pen) return colour;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2;
  pen.beginPath();
  for (const shift of [-HATCH, 0, HATCH]) {
    pen.moveTo(shift, HATCH);
    pen.lineTo(shift + HATCH, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat") ?? colour;
}
