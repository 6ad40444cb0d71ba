// What is shown, of when, and how: lanes, span, project.

import { Link, useNavigate } from "@tanstack/react-router";
import { duration } from "../../lib/format";
import { Filter } from "../../parts/Filter";
import type { Group } from "./asked";
import { type Span, moved, zoomed } from "./span";

const BACKS = [
  { from: "-1h", words: "hour" },
  { from: "-6h", words: "6 hours" },
  { from: "-24h", words: "24 hours" },
  { from: "-7d", words: "7 days" },
] as const;
const GROUPS = [
  { group: "job", name: "by job" },
  { group: "node", name: "by node" },
] as const;
interface Props {
  group: Group;
  from: string | undefined;
  to: string | undefined;
  project: string | undefined;
  /** The past moment that is shown, where it is one. */
  at: string | undefined;
  /** Whether the span stands, rather than follows the present. */
  stands: boolean;
  span: Span | undefined;
  asTable: boolean;
  onSpan: (span: Span) => void;
  onPresent: () => void;
  onTable: () => void;
}

export function Tools({ group, from, to, project, at, stands, span, asTable, onSpan, onPresent, onTable }: Props) {
  return (
    <div className="row timeline-tools">
      <nav className="timeline-switch" aria-label="Lanes">
        {GROUPS.map((one) => (
          <Link
            key={one.group}
            from="/timeline"
            to="/timeline"
            // Nodes are of no project.
            search={(before) => ({ ...before, group: one.group, ...(one.group === "node" ? { project: undefined } : {}) })}
            aria-current={group === one.group ? "true" : undefined}
          >
            {one.name}
          </Link>
        ))}
      </nav>
      <nav className="timeline-switch" aria-label="How far back">
        {BACKS.map((one) => (
          <Link
            key={one.from}
            from="/timeline"
            to="/timeline"
            search={(before) => ({ ...before, from: one.from, to: undefined })}
            title={`the last ${one.words}`}
            aria-current={!stands && (from ?? "-6h") === one.from && !to ? "true" : undefined}
          >
            {one.from.slice(1)}
          </Link>
        ))}
      </nav>
      <Move span={span} onSpan={onSpan} />
      {stands && (
        <button className="button" onClick={() => onPresent()}>
          {at ? "Until that moment" : "● Follow the present"}
        </button>
      )}
      <button className="button" aria-pressed={asTable} onClick={onTable}>
        {asTable ? "As chart" : "As table"}
      </button>
      {group === "job" && <ProjectFilter value={project} />}
    </div>
  );
}

function Move({ span, onSpan }: { span: Span | undefined; onSpan: (span: Span) => void }) {
  const acts = [
    ["◀", "Earlier", (of: Span) => moved(of, -0.5)],
    ["▶", "Later", (of: Span) => moved(of, 0.5)],
    ["−", "A longer time", (of: Span) => zoomed(of, 2)],
    ["+", "A shorter time", (of: Span) => zoomed(of, 0.5)],
  ] as const;
  return (
    <span className="row" role="group" aria-label="Move and zoom">
      {acts.map(([glyph, name, act]) => (
        <button key={name} className="button" aria-label={name} title={name} disabled={!span} onClick={() => span && onSpan(act(span))}>
          {glyph}
        </button>
      ))}
      {span && <span className="muted">{duration((span.to - span.from) / 1_000)}</span>}
    </span>
  );
}

function ProjectFilter({ value }: { value: string | undefined }) {
  const navigate = useNavigate({ from: "/timeline" });
  return (
    <Filter
      label="project"
      hint="Only jobs of this project, by its whole name"
      value={value}
      onChange={(project) => void navigate({ search: (before) => ({ ...before, project }), replace: true, resetScroll: false })}
      first
    />
  );
}
