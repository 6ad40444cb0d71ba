// Goodput of every job over time, stacked. Gaps in the measurements stay gaps in the areas.

import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import type { Job } from "../api/client";
import { useSeries } from "../api/queries";
import { clock, si } from "../lib/format";
import { type Line, align, stack } from "../lib/series";

interface Props {
  jobs: Job[];
  colours: Map<string, string>;
}

const HEIGHT = 280;
/** A young series does not fill the width with milliseconds. */
const SHORTEST_SECONDS = 60;

export function GoodputChart({ jobs, colours }: Props) {
  const shown = useMemo(() => jobs.filter((job) => job.started_at).slice(0, 8), [jobs]);
  const series = useSeries(shown);
  const [asTable, setAsTable] = useState(false);
  const measured: Line[] = shown.map((job, index) => ({
    name: job.name,
    colour: colours.get(job.id) ?? "#888888",
    points: (series[index]?.data?.points ?? []).map((point) => ({
      at: Date.parse(point.at) / 1000,
      value: point.goodput_tokens_per_second ?? null,
    })),
  }));
  // Whoever tells no steps has no area, and no place in the legend.
  const lines = measured.filter((line) => line.points.some((point) => point.value !== null));
  const total = shown.reduce((sum, job) => sum + (job.goodput_tokens_per_second ?? 0), 0);
  const running = shown.filter((job) => job.state === "running").length;
  if (shown.length === 0) return <p className="muted">No job has trained yet.</p>;
  return (
    <>
      <p className="muted" style={{ margin: "0 0 6px" }} aria-live="off">
        Now {si(total)} reference tokens per second over {running === 1 ? "1 running job" : `${running} running jobs`}.{" "}
        <button className="pill" style={{ background: "none", cursor: "pointer" }} onClick={() => setAsTable(!asTable)}>
          {asTable ? "View as chart" : "View as table"}
        </button>
      </p>
      {asTable ? <Table lines={lines} /> : <Canvas lines={lines} />}
      <div className="legend">
        {lines.map((line) => (
          <span key={line.name + line.colour}>
            <span className="swatch" style={{ background: line.colour }} />
            {line.name}
          </span>
        ))}
      </div>
    </>
  );
}

function Canvas({ lines }: { lines: Line[] }) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const scheme = useComputedColorScheme("light");
  const shape = lines.map((line) => line.name + line.colour).join("|") + scheme;
  const data = useMemo(() => stack(align(lines)), [lines]);
  const latest = useRef(data);
  latest.current = data;

  // The chart is rebuilt when its series or its theme change, and only fed otherwise.
  useEffect(() => {
    const box = host.current;
    if (!box) return;
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: style.getPropertyValue("--muted"), grid: { stroke: style.getPropertyValue("--line") } };
    const made = new uPlot(
      {
        width: box.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false },
        axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => clock(new Date(tick * 1000).toISOString())), space: 80 }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => si(tick)) }],
        scales: { x: { range: (_, min, max) => [min, Math.max(max, min + SHORTEST_SECONDS)] }, y: { range: (_, __, max) => [0, Math.max(max * 1.05, 1)] } },
        // Upper edges first: each area is painted down to zero and the next one over it.
        series: [
          {},
          ...[...lines].reverse().map((line) => ({
            label: line.name,
            stroke: line.colour,
            fill: line.colour,
            width: 1,
            points: { show: false },
          })),
        ],
      },
      latest.current as uPlot.AlignedData,
      box,
    );
    chart.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height: HEIGHT }));
    resize.observe(box);
    return () => {
      resize.disconnect();
      made.destroy();
      chart.current = null;
    };
    // `shape` stands for everything the options are made from.
  }, [shape]);

  useEffect(() => {
    chart.current?.setData(data as uPlot.AlignedData);
  }, [data]);

  return <div ref={host} role="img" aria-label="Goodput of each job over time, stacked" data-testid="goodput-chart" />;
}

function Table({ lines }: { lines: Line[] }) {
  return (
    <div className="scroll" style={{ maxHeight: HEIGHT }}>
      <table className="jobs">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">Time</th>
            <th scope="col" className="number">
              Goodput
            </th>
          </tr>
        </thead>
        <tbody>
          {lines.flatMap((line) =>
            line.points.slice(-20).map((point) => (
              <tr key={line.name + point.at}>
                <td>{line.name}</td>
                <td>{new Date(point.at * 1000).toLocaleTimeString()}</td>
                <td className="number">{si(point.value)}</td>
              </tr>
            )),
          )}
        </tbody>
      </table>
    </div>
  );
}
