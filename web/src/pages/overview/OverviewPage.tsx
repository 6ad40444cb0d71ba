// Is the cluster doing useful work, what is lost and why, and what does that ask of a person?

import { useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { useOverview, usePastOverview } from "../../api/queries";
import type { Asked } from "../../parts/Panel";
import { USUAL_WINDOW, type WindowName, WindowPicker } from "../../parts/WindowPicker";
import { useHistory } from "../goodput/asked";
import { Attention } from "./Attention";
import { FirstSteps } from "./FirstSteps";
import { Holders, PastHolders } from "./Holders";
import { Newest } from "./Newest";
import { PastTiles } from "./PastTiles";
import { Tiles } from "./Tiles";
import { Waterfall } from "./Waterfall";
import { type Account, account } from "./account";
import { type ClusterPoint, type Usage, useFigures, useLedger, useLedgerBefore } from "./asked";
import "./overview.css";

export default function OverviewPage() {
  const { at } = useSearch({ from: "__root__" });
  const { window = USUAL_WINDOW } = useSearch({ from: "/" });
  return (
    <div data-testid="page-overview">
      <header className="page-head">
        <h1>Overview</h1>
        <span className="space" />
        <WindowPicker value={window} />
      </header>
      {at ? <Past at={at} window={window} /> : <Present window={window} />}
    </div>
  );
}

function Present({ window }: { window: WindowName }) {
  const overview = useOverview();
  // Spans are told by the server's clock, which the overview tells.
  const known = overview.data !== undefined;
  const figures = useFigures(window, known);
  const ledger = useLedger(window, undefined, known);
  const before = useLedgerBefore(window, undefined, known);
  const points = useMemo(() => figures.data && [...figures.data.before, ...figures.data.points], [figures.data]);
  // Both have to be of the same window. Without figures only healthy GPU-time can be split up: not before it is known that they do not come.
  const fit = figures.data ? figures.data.stepSeconds === ledger.data?.step_seconds : figures.error !== null;
  const split = useAccount(fit ? ledger : { ...ledger, data: undefined }, points);
  return (
    <div className="grid">
      <FirstSteps overview={overview.data} />
      <Tiles overview={overview} figures={figures} ledger={ledger} before={before} window={window} />
      <Waterfall split={split} window={window} overview={overview.data} />
      <Attention overview={overview} />
      <Holders window={window} />
      <Newest at={undefined} />
    </div>
  );
}

function Past({ at, window }: { at: string; window: WindowName }) {
  // What is past does not grow old.
  const settled = { dataUpdatedAt: Number.POSITIVE_INFINITY };
  const overview = { ...usePastOverview(at), ...settled };
  const ledger = { ...useLedger(window, at, true), ...settled };
  const history = useHistory("cluster", window, at);
  return (
    <div className="grid">
      <PastTiles overview={overview} goodput={history.data?.series[0]} ledger={ledger} window={window} />
      <Waterfall split={useAccount(ledger, undefined)} window={window} />
      <Newest at={at} />
      <PastHolders at={at} overview={overview.data} />
    </div>
  );
}

/** The ledger as a sum that adds up. */
function useAccount(ledger: Asked<Usage>, points: readonly ClusterPoint[] | undefined): Asked<Account> {
  const data = useMemo(() => ledger.data && account(ledger.data, points), [ledger.data, points]);
  return { ...ledger, data };
}
