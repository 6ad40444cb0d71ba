// The jobs that had not ended at a past moment, with what is known of them then.

import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { absolute, count, duration } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { Counts } from "../../parts/Counts";
import { type Column, DataTable } from "../../parts/DataTable";
import { More, useWanted } from "../../parts/More";
import { JobLink, Middle } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { State } from "../../parts/State";
import { queryOf } from "../../lib/commands";
import { type JobsFilter, type PastJob, psCommand, usePastJobs } from "./list";
import { LIVE_STATES, liveOnes, toggled } from "./order";

interface Props {
  at: string;
  filter: JobsFilter;
  states: readonly string[];
  onState: (state: string | undefined) => void;
}

export function PastJobs({ at, filter: { project, user, q }, states, onState }: Props) {
  const navigate = useNavigate();
  const live = liveOnes(states);
  const state = live.join(",") || undefined;
  const filter = { state, project, user, q };
  const { wanted, more } = useWanted(JSON.stringify([at, filter]));
  const jobs = usePastJobs(at, filter, wanted);
  const columns = useMemo(() => columnsAt(at), [at]);
  return (
    <>
      <Counts
        label="States then"
        counts={LIVE_STATES.map((one) => ({ key: one, label: <State state={one} /> }))}
        pressed={(one) => live.includes(one)}
        onPress={(one) => onState(toggled(one, live))}
      />
      <Panel
        title="Jobs that had not ended"
        note={`at ${absolute(at)}`}
        id="past-jobs"
        asked={jobs}
        everySeconds={Number.POSITIVE_INFINITY}
        height={420}
        tools={
          <CopyAs
            command={psCommand(live, { at, project, user, name: q })}
            path={`/api/v1/jobs${queryOf({ at, state, project, user, q })}`}
          />
        }
      >
        {(list) =>
          list.items.length === 0 ? (
            <Empty>
              No job{Object.values(filter).some((one) => one !== undefined) && " that the filters admit"} had been submitted and had not ended then.
            </Empty>
          ) : (
            <>
              <DataTable
                label={`Jobs that had not ended at ${absolute(at)}`}
                testId="past-jobs-table"
                rows={list.items}
                columns={columns}
                keyOf={(row) => row.id}
                onOpen={(row) => void navigate({ to: "/jobs/$id", params: { id: row.id }, search: { at } })}
              />
              <More
                shown={list.items.length}
                total={list.next_cursor == null ? list.items.length : undefined}
                of="jobs"
                further={list.next_cursor != null}
                more={more}
                busy={jobs.isPlaceholderData}
              />
            </>
          )
        }
      </Panel>
    </>
  );
}

/** Durations end at that moment. */
function columnsAt(at: string): Column<PastJob>[] {
  const before = (then: string) => duration((Date.parse(at) - Date.parse(then)) / 1_000);
  return [
    { id: "name", header: "Job", cell: (row) => <JobLink id={row.id} name={row.name} /> },
    { id: "state", header: "State", width: "98px", cell: (row) => <State state={row.state} /> },
    {
      id: "since",
      header: "For",
      hint: "how long it had been in this state",
      width: "84px",
      number: true,
      cell: (row) => <time dateTime={row.state_since} title={absolute(row.state_since)}>{before(row.state_since)}</time>,
    },
    { id: "gpus", header: "GPUs", width: "64px", number: true, cell: (row) => (row.gpus > 0 ? count(row.gpus) : "–") },
    { id: "owner", header: "Owner", width: "100px", from: "tablet", cell: (row) => row.owner },
    { id: "project", header: "Project", width: "100px", from: "tablet", cell: (row) => row.project },
    {
      id: "age",
      header: "Age",
      width: "84px",
      number: true,
      from: "tablet",
      cell: (row) => <time dateTime={row.submitted_at} title={absolute(row.submitted_at)}>{before(row.submitted_at)}</time>,
    },
    { id: "nodes", header: "Nodes", width: "30%", from: "tablet", cell: (row) => <Middle text={row.nodes.join(", ")} /> },
  ];
}
