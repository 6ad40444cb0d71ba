// The one page of the first release: is the cluster doing useful work, what changed, and why.

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError } from "./api/client";
import { useEvents, useJobs, useLiveUpdates, useNodes, usePlan } from "./api/queries";
import { EventFeed } from "./components/EventFeed";
import { GoodputChart } from "./components/GoodputChart";
import { JobTable } from "./components/JobTable";
import { NodeMap } from "./components/NodeMap";
import { Panel } from "./components/Panel";
import { Tiles } from "./components/Tiles";
import { TokenGate } from "./components/TokenGate";
import { TopBar } from "./components/TopBar";
import { clock } from "./lib/format";
import { colours } from "./lib/palette";

export function App({ loggedIn }: { loggedIn: boolean }) {
  const [inside, setInside] = useState(loggedIn);
  const queries = useQueryClient();
  if (!inside) return <TokenGate onLogIn={() => setInside(true)} />;
  const leave = () => {
    queries.clear();
    setInside(false);
  };
  return <Overview onLogOut={leave} />;
}

function Overview({ onLogOut }: { onLogOut: () => void }) {
  const connection = useLiveUpdates();
  const [jobs, nodes, events, plan] = [useJobs(), useNodes(), useEvents(), usePlan()];
  const items = jobs.data?.items ?? [];
  const palette = colours(items.map((job) => job.id));
  const denied = jobs.error instanceof ApiError && jobs.error.status === 401;

  return (
    <>
      <a className="skip" href="#jobs">
        Skip to jobs
      </a>
      <TopBar connection={connection} plan={plan.data} onLogOut={onLogOut} />
      {connection === "lost" && jobs.dataUpdatedAt > 0 && (
        <div className="banner" role="status">
          Reconnecting; data from {clock(new Date(jobs.dataUpdatedAt).toISOString())}
        </div>
      )}
      {denied && (
        <div className="banner" role="alert">
          Your session is over. <button onClick={onLogOut}>Log in again</button>
        </div>
      )}
      <main className="grid">
        <div className="whole">
          <Tiles jobs={items} nodes={nodes.data?.items ?? []} />
        </div>
        <Panel className="wide" title="Goodput by job" unit="reference tokens per second" updatedAt={jobs.dataUpdatedAt}>
          <GoodputChart jobs={items} colours={palette} />
        </Panel>
        <Panel className="narrow" title="Nodes" updatedAt={nodes.dataUpdatedAt} error={nodes.error}>
          <NodeMap nodes={nodes.data?.items} jobs={items} colours={palette} />
        </Panel>
        <Panel className="whole" title="Jobs" id="jobs" updatedAt={jobs.dataUpdatedAt} error={jobs.error}>
          <JobTable jobs={jobs.data?.items} colours={palette} />
        </Panel>
        <Panel className="whole" title="What happened, and why" updatedAt={events.dataUpdatedAt} error={events.error}>
          <EventFeed events={events.data?.items} jobs={items} colours={palette} />
        </Panel>
      </main>
    </>
  );
}
