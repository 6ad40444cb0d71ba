// The audit: who did what to what, and why; what was refused; and what has changed by it. For operators and admins.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, unwrap } from "../../api/client";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { commandOf, queryOf } from "../../lib/commands";
import { Close, Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import { AuditChain } from "./AuditChain";
import { type AuditFilter, type AuditLine, AUDIT_SECONDS, changes, useAudit, useAuditLine, useNewestLine } from "./auditing";
import { Chip, Filters, JobChip, type Kind } from "./Filters";
import { Actor, AuditSubject } from "./Subjects";

const KINDS = [
  { kind: "verb", name: "action", example: "cancel_job, patch_policy …" },
  { kind: "actor", name: "actor", example: "a user's name" },
  { kind: "job", name: "job", example: "a job's name or id" },
  { kind: "node", name: "node", example: "a node's name or id" },
] as const;
const ACTIONS = [
  ...["submit", "cancel_job", "hold_job", "release_job", "requeue_job", "resize_job", "update_job", "pin_job", "unpin_job"],
  ...["approve_plan", "reject_plan", "rollback_plan", "pause_plans", "resume_plans", "rebalance", "patch_policy", "put_policy"],
  ...["drain_node", "undrain_node", "cordon_node", "uncordon_node", "lose_node", "delete_node", "update_node"],
  ...["put_project", "patch_project", "delete_project", "put_member", "delete_member", "put_user", "create_token", "revoke_token"],
  ...["create_join_token", "revoke_node_certificate", "create_reservation", "cancel_reservation"],
];
const RESULTS = [undefined, "done", "refused"] as const;
const HEIGHT = 560;

const COLUMNS: readonly Column<AuditLine>[] = [
  { id: "at", header: "When", width: "128px", cell: (line) => <When at={line.at} /> },
  { id: "actor", header: "Who", width: "120px", cell: (line) => <Actor actor={line.actor} /> },
  { id: "action", header: "Did", width: "170px", cell: (line) => <span className="mono">{line.action}</span> },
  { id: "subject", header: "To", width: "190px", from: "tablet", cell: (line) => <SubjectsOf line={line} /> },
  { id: "result", header: "Result", width: "110px", from: "tablet", cell: (line) => <Result line={line} /> },
  { id: "change", header: "Before → after", from: "tablet", cell: (line) => <Change line={line} /> },
  { id: "reason", header: "Reason", width: "200px", from: "desktop", cell: (line) => line.reason ?? <span className="muted">none given</span> },
];

function SubjectsOf({ line }: { line: AuditLine }) {
  const [first, ...others] = line.subjects;
  if (first === undefined) return <span className="muted">–</span>;
  return (
    <span className="events-subjects">
      <AuditSubject subject={first} />
      {others.length > 0 && <span className="muted">and {others.length} more</span>}
    </span>
  );
}

function Result({ line }: { line: AuditLine }) {
  if (line.result === "done") return <span className="good">✓ done</span>;
  return (
    <span className="bad" title={line.code ?? undefined}>
      ✕ {line.result}
    </span>
  );
}

/** The first of what has changed, on one line. */
function Change({ line }: { line: AuditLine }) {
  const all = changes(line);
  const first = all[0];
  if (!first) return <span className="muted">{line.code ?? "–"}</span>;
  return (
    <span title={all.map(({ path, before, after }) => `${path}: ${before} → ${after}`).join("\n")}>
      <span className="muted">{first.path}</span> {first.before} → {first.after}
      {all.length > 1 && <span className="muted"> and {all.length - 1} more</span>}
    </span>
  );
}

export function Audit() {
  const { verb, actor, job, node, result, event, at } = useSearch({ from: "/events" });
  const navigate = useNavigate({ from: "/events" });
  const subject = job ? `job:${job}` : node ? `node:${node}` : undefined;
  const filter = useMemo<AuditFilter>(() => ({ action: verb, actor, subject, result, until: at }), [verb, actor, subject, result, at]);
  const audit = useAudit(filter);
  const rows = useMemo(() => audit.data?.pages.flatMap((page) => page.items) ?? [], [audit.data]);
  const newest = useNewestLine(filter, !at && audit.isSuccess);
  const more = newest.data !== undefined && !audit.isPlaceholderData && newest.data > (rows[0]?.id ?? 0);
  const chosen = event !== undefined && /^\d{1,15}$/.test(event) ? Number(event) : undefined;

  const set = (next: { verb?: string | undefined; actor?: string | undefined; job?: string | undefined; node?: string | undefined; result?: (typeof RESULTS)[number]; event?: string | undefined }) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace: true, resetScroll: false });
  const add = async (kind: Kind, value: string) => {
    // A line names one subject, nodes by their ids.
    if (kind === "job") return set({ job: value, node: undefined });
    if (kind !== "node") return set({ [kind]: value });
    const { id } = await unwrap(api.GET("/api/v1/nodes/{node}", { params: { path: { node: value } } }));
    set({ node: id, job: undefined });
  };
  const filtered = verb ?? actor ?? subject ?? result;
  const asked = { ...audit, dataUpdatedAt: Math.max(audit.dataUpdatedAt, newest.dataUpdatedAt), error: audit.error ?? newest.error };
  const narrowed = { actor, action: verb, subject, result };
  return (
    <>
      <section className="events-head" aria-label="Filters">
        <div className="row" role="group" aria-label="Result">
          {RESULTS.map((one) => (
            <button key={one ?? "all"} className="button" aria-pressed={result === one} onClick={() => set({ result: one })}>
              {one ?? "done and refused"}
            </button>
          ))}
        </div>
        <Filters kinds={KINDS} known={ACTIONS} onAdd={add}>
          {verb && (
            <Chip kind="action" onRemove={() => set({ verb: undefined })}>
              {verb}
            </Chip>
          )}
          {actor && (
            <Chip kind="actor" onRemove={() => set({ actor: undefined })}>
              {actor}
            </Chip>
          )}
          {job && <JobChip id={job} onRemove={() => set({ job: undefined })} />}
          {node && !job && (
            <Chip kind="node" onRemove={() => set({ node: undefined })}>
              {node}
            </Chip>
          )}
        </Filters>
      </section>
      <div className={chosen === undefined ? undefined : "split"}>
        <Panel
          title={at ? "The audit until then" : "The audit"}
          id="audit"
          note={audit.hasNextPage ? `the newest ${count(rows.length)}; there are older ones` : `all ${count(rows.length)}`}
          tools={
            more && (
              <button className="button primary" onClick={() => void audit.refetch()}>
                There are new lines
              </button>
            )
          }
          asked={asked}
          everySeconds={at ? Number.POSITIVE_INFINITY : AUDIT_SECONDS}
          height={HEIGHT}
        >
          {() =>
            rows.length > 0 ? (
              <DataTable
                label="Lines of the audit, newest first"
                testId="audit-table"
                rows={rows}
                columns={COLUMNS}
                keyOf={(line) => String(line.id)}
                onOpen={(line) => set({ event: String(line.id) })}
                selected={chosen === undefined ? undefined : String(chosen)}
                height={HEIGHT}
              />
            ) : (
              <Empty>
                {filtered === undefined ? "Nobody has changed anything yet. Every change, and every refusal, leaves a line here." : "No line is admitted by these filters. "}
                {filtered !== undefined && (
                  <Link to="/events" search={(before) => ({ at: before.at, tab: "audit" })}>
                    Show all lines
                  </Link>
                )}
              </Empty>
            )
          }
        </Panel>
        {chosen !== undefined && <LinePanel id={chosen} onClose={() => set({ event: undefined })} />}
      </div>
      <div className="row events-foot">
        {audit.hasNextPage && (
          <button className="button" onClick={() => void audit.fetchNextPage()} disabled={audit.isFetchingNextPage}>
            {audit.isFetchingNextPage ? "Reading …" : "Older"}
          </button>
        )}
        <CopyAs command={commandOf("headway audit list", narrowed)} path={`/api/v1/audit${queryOf({ ...narrowed, until: at })}`} />
      </div>
      <AuditChain />
    </>
  );
}

function LinePanel({ id, onClose }: { id: number; onClose: () => void }) {
  const line = useAuditLine(id);
  return (
    <Panel
      title="What was done"
      id="audit-line"
      className="events-side"
      note={`line ${id}`}
      tools={<Close onClose={onClose} />}
      asked={line}
      everySeconds={Number.POSITIVE_INFINITY}
    >
      {(found) => (found ? <Line line={found} /> : <Empty>The audit has no line {id}. Either the number is wrong, or the line is older than the server keeps them (--audit-days).</Empty>)}
    </Panel>
  );
}

function Line({ line }: { line: AuditLine }) {
  const changed = changes(line);
  const facts: [string, string | null | undefined][] = [
    ["reason", line.reason ?? "none given"],
    ["refused with", line.code],
    ["from", line.address],
    ["token", line.token_id],
    ["request", line.request_id],
  ];
  return (
    <div className="stack">
      <p>
        <Actor actor={line.actor} /> <span className="mono">{line.action}</span> <Result line={line} />, <When at={line.at} />
      </p>
      <ul className="events-found">
        {line.subjects.map((subject) => (
          <li key={subject}>
            <AuditSubject subject={subject} />
          </li>
        ))}
      </ul>
      <dl className="events-detail">
        {facts.map(
          ([name, value]) =>
            value && (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ),
        )}
      </dl>
      {changed.length > 0 ? (
        <div className="events-scroll" tabIndex={0} role="region" aria-label="What has changed">
          <table className="events-change">
            <thead>
              <tr>
                <th scope="col">What</th>
                <th scope="col">Before</th>
                <th scope="col">After</th>
              </tr>
            </thead>
            <tbody>
              {changed.map(({ path, before, after }) => (
                <tr key={path}>
                  <th scope="row">{path}</th>
                  <td className="mono">{before}</td>
                  <td className="mono">{after}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <p className="muted">{line.result === "done" ? "Nothing of what is told by path has changed." : "What is refused changes nothing."}</p>
      )}
    </div>
  );
}
