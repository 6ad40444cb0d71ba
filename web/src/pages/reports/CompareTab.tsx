// The window beside the one before it: what changed, by cause and for whom.

import { useNavigate } from "@tanstack/react-router";
import { amount, gpuHours, percent, signedPercent } from "../../lib/format";
import { Bars } from "../../parts/Bars";
import { Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import { BYS, type By, type Span, type Usage, WINDOWS, type WindowName, csvOf, useUsage } from "./asked";
import { CAUSES } from "./causes";
import { Named, ReportTable, type ReportColumn } from "./ReportTable";
import { type Pair, pairs, pivot, sumOf } from "./shape";

interface Props {
  window: WindowName;
  span: Span;
  before: Span;
  by: By;
}

export function CompareTab({ window, span, before, by }: Props) {
  const { words, step } = WINDOWS[window];
  return (
    <div className="grid">
      <Window title={`These ${words}`} id="compare-now" span={span} step={step} />
      <Window title={`The ${words} before`} id="compare-before" span={before} step={step} />
      <Difference span={span} before={before} by="cause" title="By cause" />
      <Difference span={span} before={before} by={by === "cause" ? "user" : by} title="By" chosen />
    </div>
  );
}

function Window({ title, id, span, step }: { title: string; id: string; span: Span; step: string }) {
  const usage = useUsage(span, "cause", step);
  return (
    <Panel
      title={title}
      id={id}
      className="span-6"
      note={
        <>
          <When at={span.from} /> to <When at={span.to} />
        </>
      }
      asked={usage}
      everySeconds={Number.POSITIVE_INFINITY}
      height={200}
      tools={
        <a className="button reports-controls" href={csvOf(span, "cause")} download={`${id}.csv`}>
          CSV
        </a>
      }
    >
      {(told) => <Made usage={told} />}
    </Panel>
  );
}

function Made({ usage }: { usage: Usage }) {
  const total = usage.total_gpu_hours;
  if (total === 0) return <Empty>No GPU was granted to a job in this window.</Empty>;
  const hours = (cause: string) => sumOf(usage.items, (row) => row.cause === cause);
  return (
    <div className="stack">
      <p>
        <strong>{gpuHours(total)}</strong> were granted, <strong>{percent(hours("useful") / total)}</strong> of them useful.
      </p>
      <Bars
        label="Shares of what was granted, by cause"
        of={1}
        format={percent}
        bars={CAUSES.map(({ cause, colour }) => ({ key: cause, label: cause, value: hours(cause) / total, colour, note: gpuHours(hours(cause)) }))}
      />
    </div>
  );
}

function Difference({ span, before, by, title, chosen }: { span: Span; before: Span; by: By; title: string; chosen?: boolean }) {
  const navigate = useNavigate({ from: "/reports" });
  const [now, then] = [useUsage(span, by), useUsage(before, by)];
  const asked = { ...now, error: now.error ?? then.error, data: now.data && then.data && { now: now.data, then: then.data } };
  return (
    <Panel
      title={chosen ? "For whom" : title}
      id={`compare-${chosen ? "whom" : by}`}
      className="span-12"
      note="GPU-hours"
      asked={asked}
      everySeconds={Number.POSITIVE_INFINITY}
      height={200}
      tools={
        chosen && (
          <label className="row reports-controls">
            by
            <select className="field" value={by} onChange={(event) => void navigate({ search: (former) => ({ ...former, by: event.target.value }), replace: true, resetScroll: false })}>
              {BYS.filter((one) => one.by !== "cause").map((one) => (
                <option key={one.by} value={one.by}>
                  {one.name}
                </option>
              ))}
            </select>
          </label>
        )
      }
    >
      {(data) => <Table now={data.now} then={data.then} />}
    </Panel>
  );
}

function Table({ now, then }: { now: Usage; then: Usage }) {
  const by = (now.group_by[0] ?? "cause") as By;
  const rows = pairs(
    pivot(then.items, (row) => row[by]),
    pivot(now.items, (row) => row[by]),
  );
  if (rows.length === 0) return <Empty>No GPU was granted to a job in either window.</Empty>;
  const [all, former] = [now.total_gpu_hours, then.total_gpu_hours];
  const columns: ReportColumn<Pair>[] = [
    { id: "name", header: BYS.find((one) => one.by === by)?.name ?? by, cell: (row) => <Named by={by} value={row.name} />, sum: "in all" },
    { id: "before", header: "before, GPU-h", number: true, cell: (row) => hours(row.before), sum: hours(former) },
    { id: "before-share", header: "share", number: true, hint: "of all that was granted then", cell: (row) => percent(former > 0 ? row.before / former : null) },
    { id: "now", header: "now, GPU-h", number: true, cell: (row) => hours(row.now), sum: hours(all) },
    { id: "now-share", header: "share", number: true, hint: "of all that was granted now", cell: (row) => percent(all > 0 ? row.now / all : null) },
    { id: "difference", header: "difference", number: true, cell: (row) => signed(row.now - row.before), sum: signed(all - former) },
    { id: "change", header: "change", number: true, cell: (row) => change(row), sum: change({ name: "", before: former, now: all }) },
  ];
  return <ReportTable label={`Two windows by ${by}`} testId={`compare-table-${by}`} rows={rows} columns={columns} keyOf={(row) => row.name} />;
}

function hours(value: number): string {
  return value === 0 ? "–" : amount(value);
}

function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${amount(Math.abs(value))}`;
}

function change({ before, now }: Pair): string {
  if (before === 0) return now === 0 ? "–" : "new";
  return now === 0 ? "gone" : signedPercent(now / before - 1);
}
