// How much useful training the cluster does, what that is worth over rules that know nothing of goodput, and how far the model that says so is off.

import { useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { Clocked } from "../../parts/Clocked";
import { type Asked, Box, Empty } from "../../parts/Panel";
import { USUAL_WINDOW, type WindowName, WindowPicker } from "../../parts/WindowPicker";
import { type Usage, useLedger } from "../overview/asked";
import { AgainstSplit } from "./AgainstSplit";
import { CalibratedGoodput, CalibratedStarts } from "./Calibrated";
import { Errors } from "./Errors";
import { Facts } from "./Facts";
import { GainOver } from "./GainOver";
import { OverTime } from "./OverTime";
import { type Group, type History, useCalibration, useHistory, useSplit } from "./asked";
import type { BaselineName } from "./baselines";
import { type Gain, gainOf } from "./gain";
import { useTold } from "./marks";
import "./goodput.css";

export default function GoodputPage() {
  const { at } = useSearch({ from: "__root__" });
  const { window = USUAL_WINDOW, group = "job", over = "static_split" } = useSearch({ from: "/goodput" });
  return (
    <div data-testid="page-goodput">
      <header className="page-head">
        <h1>Goodput</h1>
        <span className="muted">throughput × statistical efficiency: the training that counts</span>
        <span className="space" />
        <WindowPicker value={window} />
      </header>
      <Clocked at={at} height={600}>
        <Panels at={at} window={window} group={group} over={over} />
      </Clocked>
    </div>
  );
}

function Panels({ at, window, group, over }: { at: string | undefined; window: WindowName; group: Group; over: BaselineName }) {
  const cluster = useHistory("cluster", window, at);
  const parts = useHistory(group, window, at);
  const ledger = useLedger(window, at, true);
  const told = useTold(window, at).data;
  const split = useSplit(at === undefined);
  const calibration = useCalibration(at);
  const gain = useGain(cluster, ledger, over);
  return (
    <div className="grid">
      <Facts history={cluster} gain={gain.data} at={at} window={window} over={over} />
      <OverTime cluster={cluster} parts={group === "cluster" ? undefined : parts} told={told} group={group} over={over} />
      <GainOver gain={gain} told={told} window={window} over={over} />
      {at ? (
        <Box title="Job by job" className="span-12">
          <Empty>
            What single jobs would make on a static split, and how far they are from their prediction, is worked out for the present alone.
          </Empty>
        </Box>
      ) : (
        <>
          <AgainstSplit split={split} />
          <Errors split={split} />
        </>
      )}
      <CalibratedGoodput calibration={calibration} />
      <CalibratedStarts calibration={calibration} />
    </div>
  );
}

/** Made of both answers as soon as they are of the same window, and as old as the older of them. */
function useGain(cluster: Asked<History>, ledger: Asked<Usage>, over: BaselineName): Asked<Gain> {
  const data = useMemo(() => {
    const [history, usage] = [cluster.data, ledger.data];
    return history && usage && history.step_seconds === usage.step_seconds ? gainOf(history, usage, over) : undefined;
  }, [cluster.data, ledger.data, over]);
  return {
    data,
    error: cluster.error ?? ledger.error,
    dataUpdatedAt: Math.min(cluster.dataUpdatedAt, ledger.dataUpdatedAt),
    isFetching: cluster.isFetching || ledger.isFetching,
    refetch: () => Promise.all([cluster.refetch(), ledger.refetch()]),
  };
}
