// Rows of 28 px, one line each, of which only those in sight exist. Sorting belongs to the page: it stands in the URL, and the server does it
// where lists are longer than a page.

import { type ColumnDef, tableFeatures, useTable } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, type KeyboardEvent, type ReactNode, useMemo, useRef, useState } from "react";
import { type From, leastWidth } from "./widths";
import "./data-table.css";

export interface Column<T> {
  id: string;
  header: string;
  cell: (row: T) => ReactNode;
  /** Aligned to the right, as figures are. */
  number?: boolean;
  /** What the page sorts by when the header is pressed; a `-` before it turns it round. */
  sort?: string;
  /** In pixels or `fr`-like shares as CSS takes them for a column. */
  width?: string;
  /** Windows narrower than this do without it. */
  from?: From;
  /** Of the header, on hover. */
  hint?: string;
}

interface Props<T> {
  /** Of the table, for who does not see it. */
  label: string;
  rows: readonly T[];
  /** Of one identity from render to render: cells of others are made anew, and lose the focus. */
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
  sort?: string;
  onSort?: (sort: string) => void;
  /** Enter or a press on the row. */
  onOpen?: (row: T) => void;
  selected?: string | undefined;
  /** Whose rows are pale, since they tell of what is over. */
  over?: (row: T) => boolean;
  /** Of what is seen at once, in pixels. */
  height?: number;
  testId?: string;
}

const ROW = 28;

/** The least width of a table, by how wide the window is, as variables of its CSS. */
function leastWidths<T>(columns: readonly Column<T>[]): CSSProperties {
  const of = (hidden: readonly From[]) => leastWidth(columns, hidden);
  const least = { phone: of(["tablet", "desktop", "wide"]), tablet: of(["desktop", "wide"]), desktop: of(["wide"]), wide: of([]) };
  return Object.fromEntries(Object.entries(least).map(([name, pixels]) => [`--${name}`, `${pixels}px`]));
}
const features = tableFeatures({});

export function DataTable<T extends object>(props: Props<T>) {
  const { rows, columns, keyOf, height = 560 } = props;
  const defs = useMemo<ColumnDef<typeof features, T>[]>(
    () => columns.map((column) => ({ id: column.id, header: column.header, cell: ({ row }) => column.cell(row.original) })),
    [columns],
  );
  const least = useMemo(() => leastWidths(columns), [columns]);
  const table = useTable({ features, columns: defs, data: rows as T[], getRowId: keyOf });
  const model = table.getRowModel().rows;
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: model.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    getItemKey: (index) => model[index]!.id,
    overscan: 8,
  });
  const items = virtual.getVirtualItems();
  const before = items[0]?.start ?? 0;
  const after = virtual.getTotalSize() - (items[items.length - 1]?.end ?? 0);
  const [focused, setFocused] = useState(0);
  const at = Math.min(focused, Math.max(model.length - 1, 0));

  const focus = (index: number) => {
    const next = Math.max(0, Math.min(model.length - 1, index));
    setFocused(next);
    virtual.scrollToIndex(next);
    // The row may not exist before it is in sight.
    requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(`[data-row="${next}"]`)?.focus());
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.target instanceof HTMLElement && event.target.closest("a, button, input, select, textarea, [role=dialog]")) return;
    const steps: Record<string, number> = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15 };
    const step = steps[event.key];
    if (step !== undefined) focus(at + step);
    else if (event.key === "Home") focus(0);
    else if (event.key === "End") focus(model.length - 1);
    else if (event.key === "Enter" && props.onOpen && model[at]) props.onOpen(model[at].original);
    else return;
    event.preventDefault();
  };

  return (
    <div className="data-scroll" ref={box} style={{ maxHeight: height }} role="region" aria-label={props.label} tabIndex={0}>
      <table className="data" style={least} aria-rowcount={model.length + 1} data-testid={props.testId} onKeyDown={onKey}>
        <colgroup>
          {columns.map((column) => (
            <col key={column.id} className={column.from && `from-${column.from}`} style={{ width: column.width }} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Header key={column.id} column={column} sort={props.sort} onSort={props.onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {before > 0 && <Spacer height={before} />}
          {items.map((item) => {
            const row = model[item.index]!;
            return (
              <tr
                key={row.id}
                data-row={item.index}
                aria-rowindex={item.index + 2}
                aria-selected={props.selected === undefined ? undefined : props.selected === row.id}
                className={props.over?.(row.original) ? "over" : undefined}
                tabIndex={item.index === at ? 0 : -1}
                onFocus={() => setFocused(item.index)}
                onClick={(event) => {
                  const pressed = event.target as HTMLElement;
                  if (!pressed.closest("a, button, input, label, [role=dialog]")) props.onOpen?.(row.original);
                }}
              >
                {row.getAllCells().map((cell, index) => (
                  <td key={cell.id} className={classes(columns[index]!)}>
                    <table.FlexRender cell={cell} />
                  </td>
                ))}
              </tr>
            );
          })}
          {after > 0 && <Spacer height={after} />}
        </tbody>
      </table>
    </div>
  );
}

function classes<T>(column: Column<T>): string | undefined {
  const all = [column.number && "number", column.from && `from-${column.from}`].filter(Boolean);
  return all.length > 0 ? all.join(" ") : undefined;
}

function Header<T>({ column, sort, onSort }: { column: Column<T>; sort: string | undefined; onSort: ((sort: string) => void) | undefined }) {
  const key = column.sort;
  const turned = sort === `-${key}`;
  const sorted = key !== undefined && (sort === key || turned);
  return (
    <th
      scope="col"
      className={classes(column)}
      title={column.hint}
      aria-sort={sorted ? (turned ? "descending" : "ascending") : undefined}
    >
      {key !== undefined && onSort ? (
        <button className="sort" onClick={() => onSort(sorted && !turned ? `-${key}` : key)}>
          {column.header}
          <span aria-hidden>{sorted ? (turned ? " ↓" : " ↑") : ""}</span>
        </button>
      ) : (
        column.header
      )}
    </th>
  );
}

/** One cell: as many as there are columns would have those that are hidden take up room. */
function Spacer({ height }: { height: number }) {
  return (
    <tr aria-hidden style={{ height }}>
      <td />
    </tr>
  );
}
