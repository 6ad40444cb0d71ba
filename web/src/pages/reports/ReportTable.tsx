// A table of a report: all of its rows, since it may be printed, up to a bound that is said.

import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { count } from "../../lib/format";
import { Middle } from "../../parts/Name";
import type { By } from "./asked";

export interface ReportColumn<T> {
  id: string;
  header: string;
  cell: (row: T) => ReactNode;
  /** Of the column in the last row, where it has a sum. */
  sum?: ReactNode;
  number?: boolean;
  /** Of the header, on hover. */
  hint?: string;
}

interface Props<T> {
  label: string;
  rows: readonly T[];
  columns: readonly ReportColumn<T>[];
  keyOf: (row: T) => string;
  testId?: string;
}

/** More rows are for the CSV. */
const MOST_ROWS = 300;

export function ReportTable<T>({ label, rows, columns, keyOf, testId }: Props<T>) {
  const left = rows.length - MOST_ROWS;
  const side = (column: ReportColumn<T>) => (column.number ? "number" : undefined);
  return (
    <>
      <div className="reports-scroll" role="region" aria-label={label} tabIndex={0}>
        <table className="reports-table" data-testid={testId}>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column.id} scope="col" className={side(column)} title={column.hint}>
                  {column.header}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, MOST_ROWS).map((row) => (
              <tr key={keyOf(row)}>
                {columns.map((column, index) =>
                  index === 0 ? (
                    <th key={column.id} scope="row">
                      {column.cell(row)}
                    </th>
                  ) : (
                    <td key={column.id} className={side(column)}>
                      {column.cell(row)}
                    </td>
                  ),
                )}
              </tr>
            ))}
          </tbody>
          {columns.some((column) => column.sum !== undefined) && (
            <tfoot>
              <tr>
                {columns.map((column) => (
                  <td key={column.id} className={side(column)}>
                    {column.sum}
                  </td>
                ))}
              </tr>
            </tfoot>
          )}
        </table>
      </div>
      {left > 0 && (
        <p className="muted">
          The first {count(MOST_ROWS)} of {count(rows.length)}; the CSV has all of them.
        </p>
      )}
    </>
  );
}

/** What jobs are called where they are not the reader's to know of. */
const HIDDEN = "a job of another project";

/** A value of what usage is told by, as a link to its jobs or GPUs. */
export function Named({ by, value }: { by: By; value: string }) {
  if (by === "cause" || value === HIDDEN || value === "–") return <span>{value}</span>;
  if (by === "gpu_type") {
    return value === "unknown" ? (
      <span>not known</span>
    ) : (
      <Link to="/cluster" search={{ type: value }} className="named">
        <Middle text={value} />
      </Link>
    );
  }
  return (
    <Link to="/jobs" search={by === "user" ? { user: value } : { project: value }} className="named" title={`jobs of ${value}`}>
      <Middle text={value} />
    </Link>
  );
}
