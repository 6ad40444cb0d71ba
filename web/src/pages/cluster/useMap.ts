// What stands behind the map's element: its size, where things stand, what part of it is seen, and the painter that is told of all that.

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type Camera, HOME, type Size, bounded, limits } from "./camera";
import { sameShape } from "./fleet";
import { place } from "./layout";
import { Painter, type Pointed, type Scene } from "./painter";

interface Props extends Omit<Scene, "layout"> {
  pointed: Pointed;
}

export function useMap({ fleet, look, looks, theme, admitted, reservations, pointed }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const cells = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const painter = useRef<Painter>(undefined);
  const camera = useRef(HOME);
  const [size, setSize] = useState<Size>();
  const [closer, setCloser] = useState(false);
  // Where only what GPUs do has changed, everything keeps its place.
  const [shape, setShape] = useState(fleet);
  if (shape !== fleet && !sameShape(shape, fleet)) setShape(fleet);
  const layout = useMemo(() => size && place(shape, size.width, size.height), [shape, size]);

  const latest = useRef({ layout, size });
  latest.current = { layout, size };

  /** Shows another part of the map. */
  const go = useCallback((next: Camera) => {
    const { layout: of, size: window } = latest.current;
    if (!of || !window) return;
    camera.current = next;
    painter.current?.aim(next);
    setCloser(next.scale > limits(of, window).least * 1.01);
  }, []);

  useEffect(() => {
    const [element, lower, upper] = [box.current, cells.current, above.current];
    if (!element || !lower || !upper) return;
    const made = new Painter(lower, upper);
    painter.current = made;
    const resize = new ResizeObserver(() => {
      const [width, height] = [element.clientWidth, element.clientHeight];
      setSize((before) => (before?.width === width && before.height === height ? before : { width, height }));
    });
    resize.observe(element);
    return () => {
      resize.disconnect();
      made.stop();
    };
  }, []);
  useEffect(() => {
    if (!layout || !size) return;
    painter.current?.resize(size);
    go(bounded(camera.current, layout, size));
  }, [layout, size, go]);
  useEffect(() => {
    if (layout) painter.current?.show({ fleet, layout, look, looks, theme, admitted, reservations });
  }, [fleet, layout, look, looks, theme, admitted, reservations]);
  const { job, cell, node } = pointed;
  useEffect(() => painter.current?.point({ job, cell, node }), [job, cell, node]);

  return { box, cells, above, camera, shape, layout, size, closer, go };
}
