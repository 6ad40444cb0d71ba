// Goodput over time: what jobs or projects made of it on each other, all of the cluster as a line, raw throughput, and what a
// baseline was predicted to make.

import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import type { EventRecord } from "../../api/client";
import { type Layer, Stack } from "../../chart/Stack";
import { onSteps, stepsSince } from "../../chart/grid";
import { colourOf, textureOf } from "../../lib/colour";
import { JobLink, Middle, Swatch } from "../../parts/Name";
import { type Asked, Empty, Failed, Panel } from "../../parts/Panel";
import { FIGURES_SECONDS, type Group, type History } from "./asked";
import { BASELINES, type BaselineName } from "./baselines";
import { marksOf } from "./marks";

interface Props {
  cluster: Asked<History>;
  /** Of projects or jobs; none for the cluster alone. */
  parts: Asked<History> | undefined;
  told: EventRecord[] | undefined;
  group: Group;
  over: BaselineName;
}

const GROUPS: [Group, string][] = [
  ["job", "by job"],
  ["project", "by project"],
  ["cluster", "all together"],
];

export function OverTime({ cluster, parts, told, group, over }: Props) {
  return (
    <Panel
      title="Goodput over time"
      note="reference tokens per second, means of each step"
      id="over-time"
      className="span-12"
      asked={cluster}
      everySeconds={FIGURES_SECONDS}
      height={300}
      tools={<Groups value={group} />}
    >
      {(history) => (
        <>
          {parts?.error && <Failed error={parts.error} asked={parts} />}
          <Drawn cluster={history} parts={parts?.data} told={told} over={over} />
        </>
      )}
    </Panel>
  );
}

function Groups({ value }: { value: Group }) {
  return (
    <nav className="goodput-groups" aria-label="Whose goodput">
      {GROUPS.map(([group, name]) => (
        <Link key={group} to="." search={(before) => ({ ...before, group })} aria-current={group === value ? "true" : undefined}>
          {name}
        </Link>
      ))}
    </nav>
  );
}

function ProjectLink({ project }: { project: string }) {
  return (
    <Link to="/jobs" search={{ project }} className="named">
      <Swatch id={project} />
      <Middle text={project} />
    </Link>
  );
}

interface Shown {
  cluster: History;
  parts: History | undefined;
  told: EventRecord[] | undefined;
  over: BaselineName;
}

function Drawn({ cluster, parts, told, over }: Shown) {
  const navigate = useNavigate();
  const step = cluster.step_seconds;
  const drawn = useMemo(() => {
    const points = cluster.series[0]?.points ?? [];
    const times = stepsSince(cluster.from, cluster.to, step, points);
    const layers = (parts?.series ?? []).map((line): Layer => {
      const id = line.job_id ?? line.project ?? "";
      const name = line.job_name ?? line.project ?? id;
      return {
        key: id,
        name,
        colour: colourOf(id),
        texture: textureOf(id),
        values: onSteps(line.points, parts?.step_seconds ?? step, times, (point) => point.goodput_tokens_per_second),
        label: line.job_id ? <JobLink id={line.job_id} name={name} /> : <ProjectLink project={name} />,
      };
    });
    const lines = [
      { name: "goodput of the cluster", colour: "var(--text)", values: onSteps(points, step, times, (point) => point.goodput_tokens_per_second) },
      { name: "raw throughput", colour: "var(--edge)", values: onSteps(points, step, times, (point) => point.throughput_tokens_per_second) },
      { name: `${BASELINES[over].name}, predicted`, colour: "var(--accent)", dashed: true, values: onSteps(points, step, times, BASELINES[over].rate) },
    ];
    return { times, layers, lines };
  }, [cluster, parts, step, over]);
  const marks = useMemo(() => marksOf(told), [told]);
  if (!cluster.series[0]?.points.length) {
    return (
      <Empty>
        Nothing was measured within this time. Figures come once a minute while a server leads, goodput from jobs that train:{" "}
        <code>headway submit job.yaml</code>.
      </Empty>
    );
  }
  const trained = drawn.lines[0]!.values.some((value) => value !== null && value > 0);
  const open = (id: string) =>
    void (parts?.group === "job" ? navigate({ to: "/jobs/$id", params: { id } }) : navigate({ to: "/jobs", search: { project: id } }));
  return (
    <>
      <Stack label="Goodput over time" {...drawn} stepSeconds={step} marks={marks} onOpen={open} testId="chart-goodput" />
      {!trained && <Empty>No job trained within this time. Look further back, or at what <Link to="/queue">waits</Link>.</Empty>}
      {parts?.group === "job" && (
        <p className="muted">
          The {parts.series.length} jobs that made the most, of those that you may read, standstill included; the line is the whole cluster.
        </p>
      )}
      {parts?.group === "project" && parts.left_out > 0 && <p className="muted">{parts.left_out} more projects are not drawn; the line is the whole cluster.</p>}
    </>
  );
}
