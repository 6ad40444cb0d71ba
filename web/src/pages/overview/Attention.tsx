// What a person should look at: the gravest first and of those what has most GPU-hours at stake, as the server ranks it, each with what can be done.

import { Link, type LinkProps } from "@tanstack/react-router";
import { useState } from "react";
import type { AttentionItem, Overview } from "../../api/client";
import { count, gpuHours } from "../../lib/format";
import { JobLink, NodeLink } from "../../parts/Name";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";

const AT_FIRST = 7;

/** Glyph, colour and word of how pressing it is. */
const SEVERITIES: Record<string, { glyph: string; tone: string }> = {
  critical: { glyph: "✕", tone: "bad" },
  warning: { glyph: "▲", tone: "warn" },
  notice: { glyph: "•", tone: "muted" },
};

/** Where something can be done about what names neither job, node nor plan. */
const PLACES: Record<string, { link: Pick<LinkProps, "to" | "search">; name: string }> = {
  rounds_given_up: { link: { to: "/plan" }, name: "Plan" },
  round_late: { link: { to: "/plan" }, name: "Plan" },
  planning_paused: { link: { to: "/plan" }, name: "Plan" },
  audit_unsealed: { link: { to: "/events", search: { tab: "audit" } }, name: "Audit" },
  agent_tokens: { link: { to: "/settings", search: { tab: "tokens" } }, name: "Tokens" },
  certificate_refused: { link: { to: "/settings", search: { tab: "nodes" } }, name: "Settings" },
  certificate_expires: { link: { to: "/settings", search: { tab: "nodes" } }, name: "Settings" },
  node_authority_ends: { link: { to: "/settings", search: { tab: "nodes" } }, name: "Settings" },
  node_certificates_end: { link: { to: "/settings", search: { tab: "nodes" } }, name: "Settings" },
};
const ELSEWHERE = { link: { to: "/events" }, name: "Events" } as const;

export function Attention({ overview }: { overview: Asked<Overview> }) {
  const [all, setAll] = useState(false);
  const items = overview.data?.attention ?? [];
  const total = Object.values(overview.data?.attention_by_kind ?? {}).reduce((sum, kind) => sum + kind, 0);
  const shown = all ? items : items.slice(0, AT_FIRST);
  return (
    <Panel
      title="Needs attention"
      note={total > 0 ? `${count(shown.length)} of ${count(total)}, by severity and GPU-hours at stake` : undefined}
      id="attention"
      className="span-4"
      asked={overview}
    >
      {() =>
        items.length === 0 ? (
          <Empty>
            Nothing needs a person. What happened of late stands in the <Link to="/events">events</Link>.
          </Empty>
        ) : (
          <>
            <ol className="attention">
              {shown.map((item) => (
                <Item key={`${item.kind} ${item.job_id ?? item.node_id ?? item.plan_id ?? item.headline}`} item={item} />
              ))}
            </ol>
            {items.length > AT_FIRST && (
              <button className="link attention-more" onClick={() => setAll(!all)} aria-expanded={all}>
                {all ? `only the first ${AT_FIRST}` : `show ${items.length} of ${total}`}
              </button>
            )}
          </>
        )
      }
    </Panel>
  );
}

function Item({ item }: { item: AttentionItem }) {
  const { glyph, tone } = SEVERITIES[item.severity] ?? { glyph: "•", tone: "muted" };
  return (
    <li data-kind={item.kind}>
      <p className="attention-head">
        <span className={`nowrap ${tone}`}>
          <span aria-hidden>{glyph}</span> {item.severity}
        </span>
        <About item={item} />
        <span className="space" />
        {item.gpu_hours != null && (
          <strong className="nowrap" title="GPU-hours that stood still, were lost or were waited for so far">
            {gpuHours(item.gpu_hours)}
          </strong>
        )}
        {item.since && (
          <span className="muted">
            <Ago at={item.since} suffix="" />
          </span>
        )}
      </p>
      <p>{item.headline}</p>
      <p className="muted">
        <span aria-hidden>→ </span>
        {item.next_step}
      </p>
    </li>
  );
}

/** A link to what it is about. */
function About({ item }: { item: AttentionItem }) {
  if (item.job_id) return <JobLink id={item.job_id} name={item.name ?? null} />;
  if (item.node_id) return <NodeLink node={item.node_id} name={item.name ?? null} />;
  if (item.plan_id) {
    return (
      <Link to="/plan" search={{ plan: item.plan_id }}>
        the plan
      </Link>
    );
  }
  const { link, name } = PLACES[item.kind] ?? ELSEWHERE;
  return <Link {...link}>{name}</Link>;
}
