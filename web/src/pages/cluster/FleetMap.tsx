// The map itself: two canvases that a painter paints on, the pointer, the wheel and the keys. What is at the cursor is told as text below.

import { type KeyboardEvent, type PointerEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { count } from "../../lib/format";
import { serverNow } from "../../lib/clock";
import { type ReservationIndex, remainingTime } from "../../lib/reservation";
import { type Size, panned, pointed, revealing, whole, zoomed } from "./camera";
import { moved } from "./cursor";
import type { Fleet } from "./fleet";
import { type Hit, LARGEST_CELL, type Spot, cellAt, hit } from "./layout";
import type { Look, Theme } from "./palette";
import { useMap } from "./useMap";
import { told } from "./words";

interface Props {
  fleet: Fleet;
  look: Uint8Array;
  looks: readonly Look[];
  theme: Theme;
  admitted: Uint8Array | undefined;
  shares: Float32Array | undefined;
  reservations: ReservationIndex;
  /** Id of a job: all else is dimmed. */
  lit: string | undefined;
  onLit: (job: string | undefined) => void;
  /** Id of a node. */
  selected: string | undefined;
  onSelect: (node: string | undefined) => void;
  onOpen: (node: string) => void;
}

const STEP = 1.5;
/** Below this a press is no drag. */
const DRAG_PX = 4;
/** A wheel that scrolls the page on across the map does not begin to zoom. */
const SCROLLING_MS = 400;
const LINE_PX = 16;
/** Pixels of a wheel, and of two fingers that part, for which the map is e times as large. */
const ROLLED = 500;
const PINCHED = 100;

export function FleetMap(props: Props) {
  const { fleet, look, looks, theme, admitted, shares, reservations, lit, selected, onLit, onSelect, onOpen } = props;
  const drag = useRef<{ from: Spot; at: Spot; moved: boolean }>(undefined);
  const [hover, setHover] = useState<{ hit: Hit; at: Spot }>();
  const [cursor, setCursor] = useState<number>();
  const [focused, setFocused] = useState(false);
  const words = useId();
  const chosen = useMemo(() => placeOf(fleet.nodes, selected), [fleet, selected]);
  const job = useMemo(() => placeOf(fleet.jobs, lit), [fleet, lit]);
  const at = cursor === undefined || cursor >= fleet.job.length ? undefined : cursor;
  const shown = focused ? at : undefined;
  const lines = (node: string) => (reservations.byNode.get(node) ?? []).map((one) => `reserved for ${one.name}, ${remainingTime(one, serverNow())}`);
  const map = useMap({ fleet, look, looks, theme, admitted, reservations, pointed: { job, node: chosen, cell: shown } });
  const { box, camera, shape, layout, size, closer, go } = map;
  // Where cells are as large as they become, the window is no higher than its map.
  const most = layout?.cell === LARGEST_CELL ? Math.ceil(layout.height) + 2 : undefined;
  const latest = useRef({ layout, size });
  latest.current = { layout, size };

  // React listens to wheels passively, so that the page could not be kept from scrolling.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    let scrolled = Number.NEGATIVE_INFINITY;
    const onScroll = () => (scrolled = performance.now());
    const onWheel = (event: WheelEvent) => {
      const { layout: of, size: window } = latest.current;
      if (!of || !window || performance.now() - scrolled < SCROLLING_MS) return;
      const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1);
      const next = zoomed(camera.current, Math.exp(-pixels / (event.ctrlKey ? PINCHED : ROLLED)), spotOf(event, element), of, window);
      // Where there is nothing more to zoom the page scrolls.
      if (next.scale === camera.current.scale) return;
      event.preventDefault();
      go(next);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    addEventListener("scroll", onScroll, { passive: true });
    return () => {
      element.removeEventListener("wheel", onWheel);
      removeEventListener("scroll", onScroll);
    };
  }, [box, camera, go]);

  const zoomBy = (factor: number) => {
    if (layout && size) go(zoomed(camera.current, factor, { x: size.width / 2, y: size.height / 2 }, layout, size));
  };
  const showAll = () => {
    if (layout && size) go(whole(layout, size));
  };
  const lightAt = (cell: number | undefined) => {
    const holder = cell === undefined ? -1 : (fleet.job[cell] ?? -1);
    onLit(fleet.jobs[holder]?.id);
  };
  const toCell = (cell: number) => {
    setCursor(cell);
    lightAt(cell);
    if (!layout || !size) return;
    const node = shape.node[cell]!;
    const spot = cellAt(layout, node, cell - shape.nodes[node]!.first);
    const room = layout.cell * 2;
    const part = { x: spot.x - room, y: spot.y - room, width: layout.cell + 2 * room, height: layout.cell + 2 * room };
    go(revealing(camera.current, part, layout, size));
  };
  const onKey = (event: KeyboardEvent) => {
    if (!layout || event.ctrlKey || event.metaKey || event.altKey) return;
    const node = at === undefined ? undefined : fleet.nodes[fleet.node[at]!];
    const keys: Record<string, () => void> = {
      "+": () => zoomBy(STEP),
      "=": () => zoomBy(STEP),
      "-": () => zoomBy(1 / STEP),
      "0": showAll,
      Enter: () => node && onOpen(node.id),
      " ": () => node && onSelect(node.id === selected ? undefined : node.id),
      Escape: () => onSelect(undefined),
    };
    const act = keys[event.key];
    const to = act ? undefined : moved(layout, shape, at ?? 0, event.key);
    if (!act && to === undefined) return;
    event.preventDefault();
    if (act) act();
    else if (to !== undefined) toCell(to);
  };

  const onDown = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const from = spotOf(event, box.current!);
    drag.current = { from, at: from, moved: false };
    box.current!.setPointerCapture(event.pointerId);
  };
  const onMove = (event: PointerEvent) => {
    if (!layout || !size) return;
    const spot = spotOf(event, box.current!);
    const dragged = drag.current;
    if (dragged) {
      dragged.moved ||= Math.hypot(spot.x - dragged.from.x, spot.y - dragged.from.y) >= DRAG_PX;
      if (dragged.moved) go(panned(camera.current, spot.x - dragged.at.x, spot.y - dragged.at.y, layout, size));
      dragged.at = spot;
      if (dragged.moved) return;
    }
    const found = hit(layout, shape, pointed(camera.current, spot));
    setHover(found && { hit: found, at: spot });
    lightAt(found?.cell);
  };
  const onUp = () => {
    const pressed = drag.current;
    drag.current = undefined;
    if (!pressed || pressed.moved || !layout) return;
    const found = hit(layout, shape, pointed(camera.current, pressed.at));
    onSelect(found?.node === undefined ? undefined : shape.nodes[found.node]!.id);
    if (found?.cell !== undefined) setCursor(found.cell);
  };
  const onLeave = () => {
    setHover(undefined);
    onLit(undefined);
  };

  return (
    <div className="cluster-map">
      <div
        ref={box}
        className={closer ? "cluster-window closer" : "cluster-window"}
        role="application"
        aria-roledescription="map"
        aria-label={`Map of ${count(fleet.job.length)} GPUs on ${count(fleet.nodes.length)} nodes`}
        aria-describedby={words}
        tabIndex={0}
        style={{ maxHeight: most }}
        data-testid="cluster-map"
        onKeyDown={onKey}
        onFocus={() => {
          setFocused(true);
          if (at === undefined && fleet.job.length > 0) setCursor(chosen === undefined ? 0 : Math.min(fleet.nodes[chosen]!.first, fleet.job.length - 1));
        }}
        onBlur={() => {
          setFocused(false);
          onLit(undefined);
        }}
        onPointerDown={onDown}
        onPointerMove={onMove}
        onPointerUp={onUp}
        onPointerCancel={() => (drag.current = undefined)}
        onPointerLeave={onLeave}
      >
        <canvas ref={map.cells} className="cluster-canvas" aria-hidden />
        <canvas ref={map.above} className="cluster-canvas" aria-hidden />
        {hover && size && <Tip lines={told(fleet, hover.hit, shares, lines)} at={hover.at} window={size} />}
      </div>
      <div className="cluster-foot">
        <p role="status" data-testid="cluster-cursor">
          {shown !== undefined && told(fleet, { domain: fleet.nodes[fleet.node[shown]!]!.domain, node: fleet.node[shown]!, cell: shown }, shares, lines).join(" · ")}
        </p>
        <p id={words} className={shown === undefined ? "muted" : "hidden-text"}>
          Arrow keys go from GPU to GPU, Page keys from domain to domain; Space selects the node, Enter opens it; + and − zoom, 0 shows all. The table tells the same.
        </p>
        <div className="cluster-zoom" role="group" aria-label="Zoom">
          <button className="button" aria-label="Closer" title="closer (+)" onClick={() => zoomBy(STEP)}>
            +
          </button>
          <button className="button" aria-label="Further" title="further (−)" onClick={() => zoomBy(1 / STEP)}>
            −
          </button>
          <button className="button" title="all of the map (0)" disabled={!closer} onClick={showAll}>
            All
          </button>
        </div>
      </div>
    </div>
  );
}

function placeOf(of: readonly { id: string }[], id: string | undefined): number | undefined {
  const place = id === undefined ? -1 : of.findIndex((one) => one.id === id);
  return place < 0 ? undefined : place;
}

/** Where the pointer is, from the element's corner. */
function spotOf(event: { clientX: number; clientY: number }, element: HTMLElement): Spot {
  const { left, top } = element.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
}

/** Beside the pointer, on the side that has room. */
function Tip({ lines, at, window }: { lines: string[]; at: Spot; window: Size }) {
  const [title, ...rest] = lines;
  const across = at.x < window.width / 2 ? { left: at.x + 14 } : { right: window.width - at.x + 14 };
  const down = at.y < window.height / 2 ? { top: at.y + 14 } : { bottom: window.height - at.y + 14 };
  return (
    <div className="cluster-tip" aria-hidden style={{ ...across, ...down }} data-testid="cluster-tip">
      <strong>{title}</strong>
      {rest.map((line) => (
        <div key={line}>{line}</div>
      ))}
    </div>
  );
}
