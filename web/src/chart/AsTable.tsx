// A chart as a table, for who would rather read it.

import { momentOf } from "./axis";

interface Props {
  label: string;
  /** Seconds since 1970, rising. */
  times: readonly number[];
  columns: readonly { name: string; values: readonly (number | null)[]; format: (value: number) => string }[];
  height: number;
}

const MOST_ROWS = 200;

export function AsTable({ label, times, columns, height }: Props) {
  const first = Math.max(0, times.length - MOST_ROWS);
  return (
    <div className="chart-table" style={{ maxHeight: height }} tabIndex={0} role="region" aria-label={`${label}, as a table`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {columns.map((column, index) => (
              <th scope="col" key={index} className="number">
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times.slice(first).map((at, row) => (
            <tr key={at}>
              <td>{momentOf(at, times)}</td>
              {columns.map(({ values, format }, index) => {
                const value = values[first + row];
                return (
                  <td key={index} className="number">
                    {value == null ? "–" : format(value)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {first > 0 && (
        <p className="muted">
          the last {MOST_ROWS} of {times.length}
        </p>
      )}
    </div>
  );
}
