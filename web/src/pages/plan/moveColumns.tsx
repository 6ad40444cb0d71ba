// The rows and columns of a plan's moves.

import type { ReactNode } from "react";
import type { Plan } from "../../api/client";
import { count, duration, si, signedPercent } from "../../lib/format";
import type { Column } from "../../parts/DataTable";
import { JobLink } from "../../parts/Name";
import type { Assignment, Move } from "./asks";
import { change, kindOf, layout, outcomeOf } from "./words";

/** A move, or a job that would have been moved and is left out. */
export interface Line {
  id: string;
  name: string;
  gpus: number;
  move: Move | undefined;
  out: boolean;
  /** "+2 −1" nodes, and their names; undefined: what it had is not known. */
  nodes: { words: string; names: string } | undefined;
}

/** Who has most GPUs at stake first. */
export function linesOf(plan: Plan, out: ReadonlySet<string>, before: ReadonlyMap<string, Assignment> | undefined): Line[] {
  const after = new Map(plan.assignments.map((one) => [one.job_id, one]));
  const lines = plan.moves.map((move): Line => {
    const { job_id: id, job_name: name } = move;
    const to = before && nodes(before.get(id), after.get(id));
    return { id, name, gpus: Math.max(move.from_gpus, move.to_gpus), move, out: out.has(id), nodes: to };
  });
  const moved = new Set(lines.map((line) => line.id));
  for (const id of plan.terms?.exclude ?? []) {
    const has = after.get(id);
    if (moved.has(id)) continue;
    lines.push({ id, name: has?.job_name ?? id.slice(-8), gpus: has?.gpus ?? 0, move: undefined, out: out.has(id), nodes: undefined });
  }
  return lines.sort((one, other) => other.gpus - one.gpus || (one.id < other.id ? -1 : 1));
}

/** "+2 −1": nodes that a job comes to and leaves. */
function nodes(before: Assignment | undefined, after: Assignment | undefined): { words: string; names: string } {
  const of = (one: Assignment | undefined) => new Map(one?.slices.map((slice) => [slice.node_id, slice.node_name ?? slice.node_id.slice(-8)]));
  const [had, has] = [of(before), of(after)];
  const came = [...has].filter(([id]) => !had.has(id)).map(([, name]) => name);
  const left = [...had].filter(([id]) => !has.has(id)).map(([, name]) => name);
  const words = [came.length > 0 && `+${count(came.length)}`, left.length > 0 && `−${count(left.length)}`].filter(Boolean).join(" ");
  const names = [came.length > 0 && `to ${came.join(", ")}`, left.length > 0 && `from ${left.join(", ")}`].filter(Boolean).join("; ");
  return { words: words || "same", names };
}

const told = (of: (move: Move) => ReactNode) => (line: Line) => (line.move ? of(line.move) : null);

/** Once a plan is carried out there is something to tell of what came of it. */
export function columnsFor(carriedOut: boolean): Column<Line>[] {
  const columns: (Column<Line> | false)[] = [
    { id: "job", header: "Job", cell: (line) => <JobLink id={line.id} name={line.name} /> },
    { id: "kind", header: "Move", width: "110px", cell: (line) => <Kind line={line} /> },
    carriedOut && { id: "came", header: "Came of it", width: "90px", cell: told((move) => <Outcome move={move} />) },
    {
      id: "gpus",
      header: "GPUs",
      number: true,
      width: "80px",
      cell: (line) => (line.move ? change(line.move.from_gpus, line.move.to_gpus, count) : count(line.gpus)),
    },
    {
      id: "layout",
      header: "Layout",
      width: "160px",
      from: "desktop",
      cell: told((move) => <Whole text={change(move.from_configuration, move.to_configuration, layout)} />),
    },
    {
      id: "batch",
      header: "Batch",
      hint: "sequences per step",
      number: true,
      width: "90px",
      from: "desktop",
      cell: told((move) => change(move.from_configuration?.global_batch_sequences, move.to_configuration?.global_batch_sequences, count)),
    },
    {
      id: "nodes",
      header: "Nodes",
      hint: "how many it comes to, and leaves",
      number: true,
      width: "64px",
      from: "desktop",
      cell: ({ nodes: to }) => <span title={to?.names}>{to?.words}</span>,
    },
    {
      id: "goodput",
      header: "Goodput, tok/s",
      hint: "useful tokens per second: predicted, before and after",
      number: true,
      width: "130px",
      from: "tablet",
      cell: told(goodput),
    },
    { id: "gain", header: "Gain", hint: "of goodput, as predicted", number: true, width: "72px", cell: told((move) => <Gain move={move} />) },
    carriedOut && {
      id: "measured",
      header: "Measured",
      hint: "what the goodput gained, measured before and after",
      number: true,
      width: "80px",
      cell: told((move) => signedPercent(measured(move))),
    },
    {
      id: "still",
      header: carriedOut ? "Stood still" : "Stands still",
      hint: carriedOut ? "as it was, and as it was said" : "until it trains again, with the work since its last checkpoint",
      number: true,
      width: carriedOut ? "130px" : "100px",
      cell: told(standstill),
    },
    {
      id: "back",
      header: "Pays back",
      hint: "when its own gain has paid for its standstill; –: not for this job alone",
      number: true,
      width: "100px",
      from: "tablet",
      cell: told((move) => duration(move.pays_back_after_seconds)),
    },
  ];
  return columns.filter((column) => column !== false);
}

function goodput(move: Move): string {
  const { goodput_before_tokens_per_second: before, goodput_after_tokens_per_second: after } = move;
  // Of jobs of others, and of those without a model, nothing is told; zero it is not.
  if (before === 0 && after === 0) return "not known";
  if (move.kind === "start") return si(after);
  return change(before, after, si);
}

function measured(move: Move): number | undefined {
  const { goodput_before_tokens_per_second: before, goodput_after_tokens_per_second: after } = move.outcome ?? {};
  return before != null && before > 0 && after != null ? after / before - 1 : undefined;
}

function standstill(move: Move): string {
  const was = move.outcome?.downtime_seconds;
  const said = move.downtime_seconds > 0 ? duration(move.downtime_seconds) : "none";
  if (!move.outcome) return move.kind === "start" ? "–" : said;
  return was == null ? `(${said} said)` : `${duration(was)} (${said} said)`;
}

function Kind({ line }: { line: Line }) {
  if (!line.move || line.out) {
    return (
      <span className="muted">
        <span aria-hidden>{line.out ? "‖" : "◌"}</span> {line.out ? "left out" : "comes back"}
      </span>
    );
  }
  const { glyph, tone, word } = kindOf(line.move);
  return (
    <span className={tone} title={line.move.reason}>
      <span aria-hidden>{glyph}</span> {word}
    </span>
  );
}

function Outcome({ move }: { move: Move }) {
  if (!move.outcome) return null;
  const { glyph, tone, word } = outcomeOf(move.outcome.state);
  const hint = move.outcome.state === "overtaken" ? "the job got something else first, or ended" : undefined;
  return (
    <span className={tone} title={hint}>
      <span aria-hidden>{glyph}</span> {word}
    </span>
  );
}

function Gain({ move }: { move: Move }) {
  const { goodput_before_tokens_per_second: before, goodput_after_tokens_per_second: after } = move;
  if (move.kind === "start" || !(before > 0)) return <>–</>;
  return <span className={after >= before ? "good" : "warn"}>{signedPercent(after / before - 1)}</span>;
}

function Whole({ text }: { text: string }) {
  return <span title={text}>{text}</span>;
}
