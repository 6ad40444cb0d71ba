// What stands around every page: the rail, the bar, what is wrong with the cluster, and the keys.

import { Outlet, useRouterState, useSearch } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useLive } from "../api/live";
import { useOverview } from "../api/queries";
import { Banners } from "./Banners";
import { Commands } from "./Commands";
import { Help } from "./Help";
import { useKeys } from "./keys";
import { Past } from "./Past";
import { Rail } from "./Rail";
import { useSilence } from "./silence";
import { TopBar } from "./TopBar";
import "./shell.css";

export function Shell() {
  useLive();
  const overview = useOverview();
  const silent = useSilence(overview.dataUpdatedAt);
  const stale = overview.error !== null || silent;
  const { at } = useSearch({ from: "__root__" });
  const [asks, setAsks] = useState<"command" | "help">();
  useKeys({ onCommand: () => setAsks("command"), onHelp: () => setAsks("help") });
  const path = useRouterState({ select: (state) => state.location.pathname });
  // Who hears the page is told that it is another.
  useEffect(() => document.getElementById("page")?.focus({ preventScroll: true }), [path]);
  return (
    <div className="shell">
      <a className="skip" href="#page">
        Skip to the page
      </a>
      <TopBar overview={overview.data} stale={stale} onCommand={() => setAsks("command")} />
      <Rail waiting={overview.data?.plans_waiting.length ?? 0} />
      <div className="shell-page">
        {at && <Past at={at} />}
        <Banners overview={overview} stale={stale} />
        <main id="page" tabIndex={-1}>
          <Outlet />
        </main>
      </div>
      {asks === "command" && <Commands onClose={() => setAsks(undefined)} onHelp={() => setAsks("help")} />}
      {asks === "help" && <Help onClose={() => setAsks(undefined)} />}
    </div>
  );
}
