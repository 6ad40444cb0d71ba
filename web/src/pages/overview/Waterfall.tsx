// The GPU-time of the window as a waterfall that adds up, and what every GPU does now.

import { Link, type LinkProps } from "@tanstack/react-router";
import type { Overview } from "../../api/client";
import { count, duration, gpuHours } from "../../lib/format";
import { activityShown } from "../../parts/Activity";
import { CopyAs } from "../../parts/CopyAs";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { WINDOWS, type WindowName } from "../../parts/WindowPicker";
import { type Account, type Cause, TOLERATED } from "./account";
import { FIGURES_SECONDS } from "./asked";

type To = Pick<LinkProps, "to" | "search">;

const REPORT: To = { to: "/reports", search: { tab: "usage", by: "cause" } };

/** How each part is called, what it means, and where those are that make it. */
const TOLD: Record<Cause, { name: string; means: string; colour: string; to: To }> = {
  broken: { name: "broken GPUs", means: "GPUs that no job held and that were not healthy", colour: "var(--bad)", to: { to: "/cluster", search: { by: "health" } } },
  unreachable: { name: "out of contact", means: "GPUs of nodes that were silent", colour: "var(--bad)", to: { to: "/cluster", search: { by: "activity" } } },
  withheld: {
    name: "withheld",
    means: "free GPUs of nodes that took no jobs: cordoned, drained, in quarantine, short of disk",
    colour: "var(--warn)",
    to: { to: "/cluster", search: { by: "activity" } },
  },
  reserved: {
    name: "reserved",
    means: "free GPUs of nodes that were reserved, and that no member used",
    colour: "var(--warn)",
    to: { to: "/reservations" },
  },
  idle_no_demand: { name: "idle, nobody asked", means: "free GPUs while no job waited", colour: "var(--edge)", to: { to: "/cluster", search: { by: "activity" } } },
  idle_waiting: {
    name: "idle, though jobs waited",
    means: "free GPUs while jobs waited: too few, too scattered, of other types, or a round was under way",
    colour: "var(--warn)",
    to: { to: "/queue" },
  },
  free: {
    name: "without a job",
    means: "healthy GPUs that no job held, of times when nobody counted why, or where you may not know of all jobs",
    colour: "var(--edge)",
    to: { to: "/cluster", search: { by: "activity" } },
  },
  starting: { name: "starting", means: "held from the grant to the first step", colour: "var(--warn)", to: REPORT },
  saving: { name: "saving, stopping", means: "held from the decision to stop until the GPUs were free", colour: "var(--warn)", to: REPORT },
  displaced: { name: "displaced", means: "saved and done again since others took the GPUs", colour: "var(--warn)", to: REPORT },
  rework: {
    name: "rework",
    means: "steps that nothing had saved",
    colour: "var(--bad)",
    to: { to: "/jobs", search: { state: "live", sort: "lost" } },
  },
  idle: { name: "hung", means: "held while the job's processes hung", colour: "var(--bad)", to: REPORT },
  unaccounted: {
    name: "unaccounted",
    means: "what the parts do not add up to: jobs that you may not know of, and what figures kept once a minute miss",
    colour: "repeating-linear-gradient(135deg, var(--edge) 0 3px, transparent 3px 6px)",
    to: REPORT,
  },
  useful: { name: "useful", means: "steps that counted", colour: "var(--good)", to: { to: "/goodput" } },
};

/** By the API's name of a cause. */
export function causeName(cause: string): string {
  return TOLD[cause as Cause]?.name ?? cause;
}

interface Props {
  split: Asked<Account>;
  window: WindowName;
  /** Of the present alone. */
  overview?: Overview | undefined;
}

export function Waterfall({ split, window, overview }: Props) {
  return (
    <Panel
      title="Where GPU-time went"
      note={`the ${WINDOWS[window].words} before, in GPU-hours`}
      id="waterfall"
      className="span-8"
      asked={split}
      everySeconds={FIGURES_SECONDS}
      height={280}
      tools={split.data && <CopyAs {...sameFromTerminal(split.data)} />}
    >
      {(account) => (
        <div className="stack">
          {account.total > 0 ? (
            <Parts account={account} />
          ) : (
            <Empty>No figures were kept within this time. They are kept once a minute: look again shortly, or further back.</Empty>
          )}
          <Remarks account={account} />
          {overview && overview.gpus_total > 0 && <Activities overview={overview} />}
        </div>
      )}
    </Panel>
  );
}

function sameFromTerminal({ from, to }: Account) {
  return { command: `headway usage report --by cause --from ${from} --to ${to}`, path: `/api/v1/usage?group_by=cause&from=${from}&to=${to}` };
}

function Parts({ account: { total, of, parts } }: { account: Account }) {
  const share = (hours: number) => `${((Math.abs(hours) / total) * 100).toFixed(1)} %`;
  let left = total;
  const rows = parts
    .filter(({ cause, gpuHours: hours }) => hours !== 0 || cause === "unaccounted")
    .map(({ cause, gpuHours: hours }) => {
      if (cause !== "useful") left -= hours;
      const begins = cause === "useful" ? 0 : Math.max(0, Math.min(left, left + hours));
      return { cause, hours, begins };
    });
  return (
    <ul className="waterfall" aria-label="GPU-hours, from all down to what was useful" data-testid="waterfall">
      <li>
        <Link to="/cluster" className="waterfall-name">
          {of === "all" ? "all GPUs" : "healthy GPUs"}
        </Link>
        <span className="waterfall-track" aria-hidden>
          <i style={{ left: 0, width: "100%", background: "var(--accent)" }} />
        </span>
        <span className="number">{gpuHours(total)}</span>
        <span className="number muted">100 %</span>
      </li>
      {rows.map(({ cause, hours, begins }) => (
        <Row key={cause} cause={cause} begins={begins / total} width={Math.abs(hours) / total} value={hours} share={share(hours)} />
      ))}
    </ul>
  );
}

function Row({ cause, begins, width, value, share }: { cause: Cause; begins: number; width: number; value: number; share: string }) {
  const { name, means, colour, to } = TOLD[cause];
  const kept = cause === "useful";
  return (
    <li data-cause={cause} className={kept ? "waterfall-kept" : undefined}>
      <Link {...to} className="waterfall-name" title={means}>
        {name}
      </Link>
      <span className="waterfall-track" aria-hidden>
        <i style={{ left: `${begins * 100}%`, width: `${Math.min(1 - begins, width) * 100}%`, background: colour }} />
      </span>
      <span className="number">
        {/* What is taken off has a minus; what is told twice, a plus. */}
        {kept || Math.abs(value) < 0.005 ? "" : value > 0 ? "−" : "+"}
        {gpuHours(Math.abs(value))}
      </span>
      <span className="number muted">{share}</span>
    </li>
  );
}

/** What of it is not to be relied on. */
function Remarks({ account }: { account: Account }) {
  const { total, unaccounted, sampledSeconds, windowSeconds, unsampled } = account;
  const silent = windowSeconds - sampledSeconds;
  return (
    <>
      {total > 0 && Math.abs(unaccounted) / total > TOLERATED && (
        <p className="warn" role="status">
          <span aria-hidden>▲</span> The parts miss the total by {gpuHours(Math.abs(unaccounted))}, more than {TOLERATED * 100} % of it
          {unaccounted < 0 ? ": some of it is told twice." : "."}
        </p>
      )}
      {total > 0 && silent / windowSeconds > TOLERATED && (
        <p className="muted">
          Figures were kept for {duration(sampledSeconds)} of {duration(windowSeconds)}, and only that time is split up.
          {unsampled > 0 && ` Jobs held ${gpuHours(unsampled)} in the rest.`}
        </p>
      )}
    </>
  );
}

/** By the API's name of what a GPU does, in the order of the strip; these lie side by side, and have to be told apart. */
const COLOURS: Record<string, string> = {
  ...{ training: "var(--good)", starting: "var(--c1)", stopping: "var(--c5)", idle_waiting: "var(--warn)" },
  ...{ idle_no_demand: "var(--edge)", reserved: "var(--c4)", withheld: "var(--c7)", unreachable: "var(--c3)", broken: "var(--bad)" },
};
const ORDER = Object.keys(COLOURS);

/** Every GPU once, by what it does now. */
function Activities({ overview: { gpus_by_activity: by, gpus_total: total } }: { overview: Overview }) {
  const shown = Object.entries(by)
    .filter(([, gpus]) => gpus > 0)
    .sort(([one], [other]) => ORDER.indexOf(one) - ORDER.indexOf(other))
    .map(([activity, gpus]) => ({ activity, gpus, colour: COLOURS[activity] ?? "var(--edge)", ...activityShown(activity) }));
  const sum = shown.reduce((all, { gpus }) => all + gpus, 0);
  return (
    <div className="activities">
      <h3>
        Now <span className="muted">{count(sum)} of {count(total)} GPUs, each once</span>
      </h3>
      <div className="activities-strip" aria-hidden>
        {shown.map(({ activity, gpus, colour }) => (
          <i key={activity} style={{ flexGrow: gpus, background: colour }} />
        ))}
      </div>
      <ul className="activities-key" aria-label="GPUs by what they do now">
        {shown.map(({ activity, gpus, word, means, colour }) => (
          <li key={activity}>
            <span className="swatch" style={{ background: colour }} aria-hidden />
            <Link to="/cluster" search={{ by: "activity" }} title={means}>
              {count(gpus)} {word}
            </Link>
          </li>
        ))}
      </ul>
    </div>
  );
}
