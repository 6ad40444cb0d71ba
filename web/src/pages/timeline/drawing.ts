// The canvas of the lanes: painted anew when what it shows has changed, and on every scroll; and the wheel, which moves and zooms it.

import { useComputedColorScheme } from "@mantine/core";
import { type RefObject, useCallback, useEffect, useRef } from "react";
import { type Colours, coloursOf } from "./colours";
import { type Scene, paint } from "./paint";
import { type Span, moved, zoomed } from "./span";

const LINE_PX = 16;
const ZOOM_PER_PX = 0.003;

interface Drawn {
  /** What scrolls. */
  box: RefObject<HTMLDivElement | null>;
  canvas: RefObject<HTMLCanvasElement | null>;
  scene: Scene;
  width: number;
  height: number;
}

/** Returns what paints at once, for when the list is scrolled. */
export function useDrawing({ box, canvas, scene, width, height }: Drawn): () => void {
  const scheme = useComputedColorScheme("light");
  const colours = useRef<Colours>(undefined);
  const latest = useRef({ scene, width });
  latest.current = { scene, width };
  const draw = useCallback(() => {
    const [element, scroller] = [canvas.current, box.current];
    const pen = element?.getContext("2d");
    if (!element || !scroller || !pen) return;
    const high = element.clientHeight;
    const [pixels, lines] = [Math.round(latest.current.width * devicePixelRatio), Math.round(high * devicePixelRatio)];
    if (element.width !== pixels || element.height !== lines) [element.width, element.height] = [pixels, lines];
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    colours.current ??= coloursOf(pen);
    paint(pen, latest.current.scene, colours.current, scroller.scrollTop, latest.current.width, high);
  }, [box, canvas]);
  useEffect(() => {
    colours.current = undefined;
  }, [scheme]);
  useEffect(() => {
    const frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, [draw, ...Object.values(scene), width, height, scheme]);
  return draw;
}

/** The wheel alone scrolls the list. It has to be kept from that where it moves or zooms, which React's own listeners cannot do. */
export function useWheel(canvas: RefObject<HTMLCanvasElement | null>, state: { span: Span; width: number; onSpan: (span: Span) => void }) {
  const latest = useRef(state);
  latest.current = state;
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const onWheel = (event: WheelEvent) => {
      const { span, width, onSpan } = latest.current;
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
      if (event.ctrlKey || event.metaKey) {
        const under = span.from + (event.offsetX / width) * (span.to - span.from);
        onSpan(zoomed(span, Math.exp(event.deltaY * unit * ZOOM_PER_PX), under));
      } else if (sideways !== 0) onSpan(moved(span, (sideways * unit) / width));
      else return;
      event.preventDefault();
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [canvas]);
}
