// The lanes: names that are links on the left, a canvas on the right, of which only what is in sight is painted. Moved and zoomed by wheel,
// drag, buttons and keyboard; what is under the pointer or the keyboard is told in words.

import { useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type PointerEvent, type ReactNode, useId, useMemo, useRef, useState } from "react";
import { useWidth } from "../../chart/width";
import { useDrawing, useWheel } from "./drawing";
import { Names } from "./Names";
import { ROW_HEIGHT, type Scene, depth } from "./paint";
import { type Bar, type Held, type Row, type Under, under } from "./rows";
import { type Span, moved, zoomed } from "./span";
import { Tip } from "./Tip";
import { opens, told } from "./words";

interface Props extends Omit<Scene, "marked" | "past"> {
  /** The past moment that is shown, where it is one. */
  until: string | undefined;
  /** What is seen, in one sentence, for who does not see it. */
  summary: string;
  onSpan: (span: Span) => void;
  /** The list is nearly at its end. */
  onNear: () => void;
  onPresent: () => void;
  onTable: () => void;
  /** What stands above the lanes, as wide as they are. */
  above: (gutter: number, width: number) => ReactNode;
}

const HEIGHT = 560;
const NEAR = 300;
const [WIDE_GUTTER, NARROW_GUTTER, NARROW] = [210, 104, 640];
/** A press that moves less than this is no drag. */
const STILL = 4;
/** So many pixels beside a mark still count. */
const NEAR_PX = 2;

interface Mark {
  row: number;
  under: Under | undefined;
  /** On the canvas, in sight. */
  x: number;
  y: number;
  by: "pointer" | "keys";
}

export function Gantt(props: Props) {
  const { rows, span, byNode } = props;
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const drag = useRef<{ x: number; span: Span; moved: boolean }>(undefined);
  const [mark, setMark] = useState<Mark>();
  const hint = useId();
  const navigate = useNavigate();
  const gutter = width > 0 && width < NARROW ? NARROW_GUTTER : WIDE_GUTTER;
  const inner = Math.max(0, width - gutter);
  const height = Math.min(HEIGHT, Math.max(ROW_HEIGHT * 3, rows.length * ROW_HEIGHT));
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => ROW_HEIGHT, overscan: 6 });
  const scene: Scene = { rows, span, now: props.now, most: props.most, byNode, reserved: props.reserved, past: props.until !== undefined, marked: mark?.row };
  const draw = useDrawing({ box, canvas, scene, width: inner, height });
  useWheel(canvas, { span, width: inner, onSpan: props.onSpan });

  const perPx = (span.to - span.from) / Math.max(1, inner);
  const momentAt = (x: number) => span.from + x * perPx;
  const find = (x: number, y: number): Mark | undefined => {
    const down = y + (box.current?.scrollTop ?? 0);
    const row = Math.floor(down / ROW_HEIGHT);
    const lane = rows[row];
    return lane && { row, under: under(lane, momentAt(x), depth(down % ROW_HEIGHT), NEAR_PX * perPx), x, y, by: "pointer" };
  };
  const open = (at: Mark | undefined, moment: number) => {
    const lane = at && rows[at.row];
    const target = lane && at.under && opens(lane, at.under, moment, props);
    if (!target) return;
    if (target.page === "event") void navigate({ to: "/events", search: { at: props.until, event: String(target.seq) } });
    else if (target.page === "job") void navigate({ to: "/jobs/$id", params: { id: target.id }, search: { at: target.at } });
    else void navigate({ to: "/nodes/$node", params: { node: target.id }, search: { at: target.at } });
  };
  /** Puts the keyboard's mark on a bar of a row and brings both into sight. */
  const markBar = (row: number, index: number) => {
    const lane = rows[row];
    if (!lane) return;
    const bars = barsOf(lane, byNode);
    const bar = bars[Math.max(0, Math.min(bars.length - 1, index))];
    virtual.scrollToIndex(row);
    if (bar && (bar.to < span.from || bar.from > span.to)) props.onSpan(moved(span, ((bar.from + bar.to) / 2 - (span.from + span.to) / 2) / (span.to - span.from)));
    const x = bar ? Math.max(0, Math.min(inner, (bar.from - span.from) / perPx)) : 0;
    const y = Math.max(0, Math.min(height - ROW_HEIGHT, row * ROW_HEIGHT - (box.current?.scrollTop ?? 0)));
    setMark({ row, under: bar && ("slot" in bar ? { kind: "held", held: bar } : { kind: "bar", bar }), x, y, by: "keys" });
  };

  const onMove = (event: PointerEvent) => {
    const held = drag.current;
    if (!held || (!held.moved && Math.abs(event.clientX - held.x) <= STILL)) return setMark(find(event.nativeEvent.offsetX, event.nativeEvent.offsetY));
    held.moved = true;
    setMark(undefined);
    props.onSpan(moved(held.span, (held.x - event.clientX) / inner));
  };
  const onUp = ({ nativeEvent: { offsetX, offsetY } }: PointerEvent) => {
    const held = drag.current;
    drag.current = undefined;
    if (held && !held.moved) open(find(offsetX, offsetY), momentAt(offsetX));
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = mark?.row ?? 0;
    const bars = rows[row] ? barsOf(rows[row], byNode) : [];
    const on = mark?.under?.kind === "bar" ? mark.under.bar : mark?.under?.kind === "held" ? mark.under.held : undefined;
    const index = bars.findIndex((bar) => bar === on);
    const acts: Record<string, () => void> = {
      ArrowDown: () => markBar(Math.min(rows.length - 1, mark ? row + 1 : 0), Number.POSITIVE_INFINITY),
      ArrowUp: () => markBar(Math.max(0, row - 1), Number.POSITIVE_INFINITY),
      ArrowLeft: () => markBar(row, (index < 0 ? bars.length : index) - 1),
      ArrowRight: () => markBar(row, index < 0 ? bars.length - 1 : index + 1),
      Home: () => markBar(row, 0),
      End: () => markBar(row, bars.length - 1),
      Enter: () => on && open(mark, (on.from + on.to) / 2),
      Escape: () => setMark(undefined),
      "[": () => props.onSpan(moved(span, -0.5)),
      "]": () => props.onSpan(moved(span, 0.5)),
      "+": () => props.onSpan(zoomed(span, 0.5)),
      "=": () => props.onSpan(zoomed(span, 0.5)),
      "-": () => props.onSpan(zoomed(span, 2)),
      l: () => props.onPresent(),
      t: props.onTable,
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  const onScroll = () => {
    const element = box.current;
    if (!element) return;
    requestAnimationFrame(draw);
    if (element.scrollHeight - element.scrollTop - element.clientHeight < NEAR) props.onNear();
  };

  // What stands above moves with the span, not with the pointer.
  const above = useMemo(() => width > 0 && props.above(gutter, inner), [props.above, gutter, inner, width]);
  const lane = mark && rows[mark.row];
  const words = lane && told(lane, mark.under, byNode);
  return (
    <div className="timeline-gantt">
      {above}
      <div className="timeline-lanes" data-testid="timeline-lanes">
        <div className="timeline-box" ref={box} style={{ height }} onScroll={onScroll}>
          <div style={{ height: Math.max(height, virtual.getTotalSize()) }}>
            <Names rows={rows} items={virtual.getVirtualItems()} byNode={byNode} width={gutter} marked={mark?.row} />
            <canvas
              ref={canvas}
              className={mark?.under ? "timeline-canvas over" : "timeline-canvas"}
              style={{ marginLeft: gutter, width: inner, height }}
              role="img"
              aria-label={props.summary}
              aria-describedby={hint}
              tabIndex={0}
              onPointerDown={(event) => {
                if (event.button !== 0) return;
                drag.current = { x: event.clientX, span, moved: false };
                event.currentTarget.setPointerCapture(event.pointerId);
              }}
              onPointerMove={onMove}
              onPointerUp={onUp}
              onPointerCancel={() => (drag.current = undefined)}
              onPointerLeave={() => setMark((before) => (before?.by === "pointer" ? undefined : before))}
              onBlur={() => setMark(undefined)}
              onKeyDown={onKey}
            />
          </div>
        </div>
        {words && mark.under && <Tip told={words} place={{ x: mark.x, y: mark.y, gutter, width: inner, height }} />}
      </div>
      <p className="hidden-text" role="status">
        {words && mark.by === "keys" && `${words.title}: ${words.lines.join("; ")}`}
      </p>
      <p className="muted timeline-hint" id={hint}>
        Ctrl and wheel zoom, Shift and wheel or dragging move. Keys: arrows go from bar to bar, Enter opens, [ ] move, + − zoom, l the present, t the table.
      </p>
    </div>
  );
}

/** What the keyboard goes along: of a node who held its GPUs, where somebody did. */
function barsOf(row: Row, byNode: boolean): readonly (Bar | Held)[] {
  return byNode && row.held.length > 0 ? row.held : row.bars;
}
