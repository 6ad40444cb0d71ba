// Reports of a window: usage, fairness, and two windows side by side. They stand still until they are renewed, and print.

import { Link, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useState } from "react";
import { useOverview } from "../../api/queries";
import { serverNow } from "../../lib/clock";
import { absolute } from "../../lib/format";
import { Loading } from "../../parts/Panel";
import { CompareTab } from "./CompareTab";
import { FairnessTab } from "./FairnessTab";
import { UsageTab } from "./UsageTab";
import { WINDOWS, type WindowName, byOf, spanOf } from "./asked";
import "./reports.css";

const TABS = [
  { tab: "usage", name: "Usage" },
  { tab: "fairness", name: "Fairness" },
  { tab: "compare", name: "Compare" },
] as const;
const MINUTE = 60_000;

export default function ReportsPage() {
  const { at } = useSearch({ from: "/reports" });
  const [asked, setAsked] = useState<number>();
  const end = at ? Date.parse(at) : asked;
  const renew = useCallback(() => setAsked(Math.floor(serverNow() / MINUTE) * MINUTE), []);
  return (
    <div className="reports" data-testid="page-reports">
      {end === undefined ? <Waiting onClock={renew} /> : <Report end={end} onRenew={at ? undefined : renew} />}
    </div>
  );
}

/** Where a report ends is told by the server's clock, which the overview sets. */
function Waiting({ onClock }: { onClock: () => void }) {
  const known = useOverview().data !== undefined;
  useEffect(() => {
    if (known) onClock();
  }, [known, onClock]);
  return (
    <>
      <header className="page-head">
        <h1>Reports</h1>
      </header>
      <Loading height={400} />
    </>
  );
}

function Report({ end, onRenew }: { end: number; onRenew: (() => void) | undefined }) {
  const { tab = "usage", window = "7d", by } = useSearch({ from: "/reports" });
  return (
    <>
      <header className="page-head">
        <h1>Reports</h1>
        <span className="muted">
          {WINDOWS[window].words} until {absolute(end)}
        </span>
        <span className="space" />
        <span className="row reports-controls">
          <Windows value={window} />
          {onRenew && (
            <button className="button" onClick={onRenew}>
              Renew
            </button>
          )}
          <button className="button" onClick={() => print()}>
            Print
          </button>
        </span>
      </header>
      <nav className="tabs reports-controls" aria-label="Reports">
        {TABS.map((one) => (
          <Link key={one.tab} from="/reports" to="/reports" search={(before) => ({ ...before, tab: one.tab })} aria-current={tab === one.tab ? "page" : undefined}>
            {one.name}
          </Link>
        ))}
      </nav>
      <Tab {...{ tab, window, end, by }} past={onRenew === undefined} />
    </>
  );
}

function Tab({ tab, window, end, by, past }: { tab: (typeof TABS)[number]["tab"]; window: WindowName; end: number; by: string | undefined; past: boolean }) {
  const span = spanOf(window, end);
  if (tab === "fairness") return <FairnessTab span={span} end={end} past={past} />;
  if (tab === "compare") return <CompareTab {...{ window, span }} before={spanOf(window, end, 1)} by={byOf(by)} />;
  return <UsageTab {...{ window, span }} by={byOf(by)} />;
}

function Windows({ value }: { value: WindowName }) {
  return (
    <nav className="reports-windows" aria-label="How long">
      {(Object.keys(WINDOWS) as WindowName[]).map((name) => (
        <Link
          key={name}
          from="/reports"
          to="/reports"
          search={(before) => ({ ...before, window: name })}
          aria-current={name === value ? "true" : undefined}
          title={`the last ${WINDOWS[name].words}`}
        >
          {name}
        </Link>
      ))}
    </nav>
  );
}
