// One event, and beside it the chain it stands in: what led to it and what came of it, as lines that part where several things follow from one.

import { Link } from "@tanstack/react-router";
import type { EventRecord } from "../../api/client";
import { absolute, duration } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { Close, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";
import { When } from "../../parts/When";
import { type EventLink, type Run, parted, runs } from "./chain";
import { useChain } from "./log";
import { Actor, Subjects } from "./Subjects";
import { verbShown } from "./verbs";

/** Branches beyond these are folded away. */
const MOST_BRANCHES = 5;
const EVERY_SECONDS = 15;

export function ChainPanel({ seq, onClose }: { seq: number; onClose: () => void }) {
  const chain = useChain(seq);
  return (
    <Panel
      title="Why, and what came of it"
      id="chain"
      className="events-side"
      note={`event ${seq}`}
      tools={<Close onClose={onClose} hotkey="Esc" />}
      asked={chain}
      everySeconds={EVERY_SECONDS}
      height={320}
    >
      {({ items }) => <Chain items={items} seq={seq} />}
    </Panel>
  );
}

function Chain({ items, seq }: { items: EventLink[]; seq: number }) {
  const told = items.find((link) => link.event.seq === seq)?.event;
  const moments = new Map(items.map((link) => [link.event.seq, Date.parse(link.event.at)]));
  return (
    <div className="stack">
      {told && <Told event={told} />}
      <h3>{items.length > 1 ? `The chain it stands in: ${items.length} events` : "Nothing is known to have led to it, and nothing came of it yet."}</h3>
      {items.length > 1 && runs(items).map((run) => <Branch key={run.links[0]!.event.seq} run={run} seq={seq} moments={moments} />)}
      <CopyAs command={`headway events chain ${seq}`} path={`/api/v1/events/${seq}/chain`} />
    </div>
  );
}

function Told({ event }: { event: EventRecord }) {
  const { glyph, tone } = verbShown(event.verb);
  const detail = Object.entries(event.detail ?? {});
  return (
    <div className="stack">
      <p className={tone}>
        <span aria-hidden>{glyph}</span> <strong>{event.verb}</strong>
      </p>
      <p className="events-whole">{event.message}</p>
      <dl className="events-detail">
        <dt>when</dt>
        <dd>
          {absolute(event.at)}, <Ago at={event.at} />
        </dd>
        <dt>by</dt>
        <dd>
          <Actor actor={event.actor} event={event} />
        </dd>
        {(event.job_id ?? event.node_id ?? event.plan_id) && (
          <>
            <dt>about</dt>
            <dd>
              <Subjects event={event} />
            </dd>
          </>
        )}
        {detail.map(([name, value]) => (
          <Pair key={name} name={name} value={value} />
        ))}
      </dl>
    </div>
  );
}

function Pair({ name, value }: { name: string; value: string }) {
  return (
    <>
      <dt>{name.replaceAll("_", " ")}</dt>
      <dd className="mono">{value}</dd>
    </>
  );
}

interface BranchProps {
  run: Run;
  seq: number;
  /** When each event of the chain was. */
  moments: Map<number, number>;
}

function Branch({ run, seq, moments }: BranchProps) {
  const [shown, folded] = parted(run.branches, seq, MOST_BRANCHES);
  const branch = (one: Run) => (
    <li key={one.links[0]!.event.seq}>
      <Branch run={one} seq={seq} moments={moments} />
    </li>
  );
  return (
    <div className="events-run">
      <ol className="events-chain">
        {run.links.map((link) => (
          <Step key={link.event.seq} link={link} here={link.event.seq === seq} after={since(link, moments)} />
        ))}
      </ol>
      {run.branches.length > 0 && (
        <ul className="events-branches" aria-label={`${run.branches.length} things that follow`}>
          {shown.map(branch)}
        </ul>
      )}
      {folded.length > 0 && (
        <details className="events-folded">
          <summary>and {folded.length} more that follow from the same</summary>
          <ul className="events-branches">{folded.map(branch)}</ul>
        </details>
      )}
    </div>
  );
}

/** How long after its cause. */
function since(link: EventLink, moments: Map<number, number>): string | undefined {
  const cause = link.because_of == null ? undefined : moments.get(link.because_of);
  if (cause === undefined) return undefined;
  const seconds = (Date.parse(link.event.at) - cause) / 1_000;
  return seconds < 1 ? "at once" : `after ${duration(seconds)}`;
}

function Step({ link: { event }, here, after }: { link: EventLink; here: boolean; after: string | undefined }) {
  const { glyph, tone } = verbShown(event.verb);
  return (
    <li className={here ? "events-step here" : "events-step"} aria-current={here ? "step" : undefined}>
      <span className={`events-dot ${tone}`} aria-hidden>
        {glyph}
      </span>
      <div className="events-step-head">
        {here ? (
          <strong className={tone}>{event.verb}</strong>
        ) : (
          <Link to="/events" search={(before) => ({ ...before, tab: undefined, event: String(event.seq) })} replace resetScroll={false}>
            {event.verb}
          </Link>
        )}
        <span className="muted">
          <When at={event.at} />
          {after && `, ${after}`}
        </span>
        <Subjects event={event} />
      </div>
      <p className="events-whole">{event.message}</p>
    </li>
  );
}
