// What the ranks wrote, merged by time: by attempt and rank, filtered, followed while it is written; the rank that said nothing is told first.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useId, useMemo, useState } from "react";
import { clock, count } from "../../../lib/format";
import { CopyAs } from "../../../parts/CopyAs";
import { Filter } from "../../../parts/Filter";
import { Box, Empty, Failed, Loading } from "../../../parts/Panel";
import { When } from "../../../parts/When";
import type { TabProps } from "../JobPage";
import { type AllocationRecord, type JobDetail, hasEnded, useAllocations } from "../asks";
import { gpusOf } from "../words";
import { LogView } from "./LogView";
import { useFeed } from "./feed";
import { filterOf, silence, spans } from "./lines";
import { placeOf } from "./permalink";
import { type Choice, type Writer, choices, chosen, writers } from "./ranks";
import "./logs.css";

/** Lines of each rank that are read first; 0: all. */
const TAILS = [200, 2_000, 20_000, 0];
const TAIL_OF_ONE = 2_000;
const TAIL_OF_MANY = 200;
/** Times of lines are told to a few seconds, and a rank may be a few steps later than others. */
const LEAST_MARGIN_MS = 15_000;
const MARGIN_STEPS = 3;
/** Before a line that an address names so much is read, too. */
const BEFORE_MS = 60_000;

export default function LogsTab({ job, at }: TabProps) {
  const allocations = useAllocations(job, undefined);
  const { attempt } = useSearch({ from: "/jobs/$id" });
  const items = allocations.data;
  if (allocations.error && !items) return <Failed error={allocations.error} asked={allocations} />;
  if (!items) return <Loading height={400} />;
  if (items.length === 0) {
    return (
      <Empty>
        It has not run yet, so nothing was written.{" "}
        <Link to="/queue" search={{ job: job.id }}>
          Why it waits
        </Link>
      </Empty>
    );
  }
  const shown = numberOf(items, attempt);
  return (
    <>
      {at && <p className="muted">Output is shown as it is now: it is not kept by moments.</p>}
      <Attempt key={items[shown - 1]!.generation} job={job} items={items} number={shown} />
    </>
  );
}

/** Attempts are counted from 1; "g7" is that of generation 7. What is neither means the newest. */
function numberOf(items: readonly AllocationRecord[], attempt: string | undefined): number {
  const [, generation] = /^g(\d+)$/.exec(attempt ?? "") ?? [];
  const number = generation ? items.findIndex((one) => one.generation === Number(generation)) + 1 : Number(attempt);
  return Number.isInteger(number) && number >= 1 && number <= items.length ? number : items.length;
}

function Attempt({ job, items, number }: { job: JobDetail; items: AllocationRecord[]; number: number }) {
  const allocation = items[number - 1]!;
  const newest = number === items.length;
  const { attempt, rank, q, tail, line } = useSearch({ from: "/jobs/$id" });
  const navigate = useNavigate();
  const of = useMemo(() => writers(job, allocation), [job.spec, allocation]);
  const ranks = useMemo(() => chosen(of, rank), [of, rank]);
  const kept = TAILS.find((lines) => String(lines) === tail) ?? (ranks.length === 1 ? TAIL_OF_ONE : TAIL_OF_MANY);
  const live = newest && !hasEnded(job.state) && allocation.ended_at == null;
  const [follows, setFollows] = useState(true);
  // An address that names a line is read from there; a line that is chosen later is there already.
  const [opened, setOpened] = useState(() => placeOf(line));
  const since = opened && new Date(opened.at - BEFORE_MS).toISOString();
  const { feed, version, again } = useFeed({
    ...{ id: job.id, generation: allocation.generation, ranks, follow: live && follows },
    ...{ since, tail: since ? undefined : kept || undefined },
  });
  const [folds, setFolds] = useState(true);
  const [wraps, setWraps] = useState(false);
  const [timed, setTimed] = useState(true);
  const shows = useMemo(() => filterOf(q), [q]);
  const set = (search: { rank?: string | undefined; attempt?: string | undefined; tail?: string | undefined; q?: string | undefined; line?: string | undefined }) =>
    void navigate({ to: ".", search: (before) => ({ ...before, ...search }), replace: true, resetScroll: false });

  const query = new URLSearchParams({ rank: ranks.join(","), generation: String(allocation.generation), timestamps: "true" });
  const path = `/api/v1/jobs/${job.id}/logs?${query}`;
  const which = ranks.length === of.length ? "all" : ranks.join(",");
  const command = `headway logs ${job.id} --rank ${which}${newest ? "" : ` --attempt ${number}`}${live ? " --follow" : ""}`;
  return (
    <Box
      title="Output"
      id="job-logs"
      note={
        <>
          attempt {number} of {items.length}, {gpusOf(allocation.gpus)}, since <When at={allocation.granted_at} />
        </>
      }
      tools={
        <>
          <a href={path} download={`${job.name}-attempt-${number}.log`}>
            download
          </a>
          <CopyAs command={command} path={path} />
        </>
      }
    >
      <div className="row job-log-tools">
        <Select
          label="Attempt"
          value={String(number)}
          onChange={(value) => set({ attempt: value === String(items.length) ? undefined : value })}
          options={items.map((one, index) => ({ value: String(index + 1), label: `${index + 1}: ${gpusOf(one.gpus)}` })).reverse()}
        />
        <Ranks of={of} choice={rank} onChange={(value) => set({ rank: value })} />
        <Select
          label="Lines of each"
          value={since ?? String(kept)}
          onChange={(value) => {
            if (value === since) return;
            setOpened(undefined);
            set({ tail: value, line: undefined });
          }}
          options={[
            ...(since ? [{ value: since, label: `since ${clock(since)}` }] : []),
            ...TAILS.map((lines) => ({ value: String(lines), label: lines === 0 ? "all" : `the last ${count(lines)}` })),
          ]}
        />
        <Filter label="Filter: text or /pattern/" value={q} onChange={(value) => set({ q: value })} first width={220} />
        <Check label="fold what ranks say alike" on={folds} onChange={setFolds} disabled={ranks.length < 2} />
        <Check label="wrap" on={wraps} onChange={setWraps} />
        <Check label="times" on={timed} onChange={setTimed} />
        {live && <Check label="follow" on={follows} onChange={setFollows} />}
      </div>
      {typeof shows === "string" && <p className="bad">No pattern: {shows}</p>}
      <Silent job={job} ranks={ranks} last={feed.last} of={of} live={live} onRank={(value) => set({ rank: value })} />
      {feed.error && <Failed error={feed.error} asked={{ refetch: again, isFetching: false }} />}
      <LogView
        feed={feed}
        version={version}
        ranks={ranks}
        folds={folds && ranks.length > 1}
        wraps={wraps}
        timed={timed}
        follows={live && follows}
        shows={typeof shows === "function" ? shows : undefined}
        onUnfilter={() => set({ q: undefined })}
        chosen={line}
        onChoose={(address) => set({ line: address, attempt: address ? String(number) : attempt })}
      />
    </Box>
  );
}

interface SilentProps {
  job: JobDetail;
  ranks: readonly number[];
  last: ReadonlyMap<number, number>;
  of: readonly Writer[];
  live: boolean;
  onRank: (rank: string) => void;
}

/** Which rank said nothing since the others' last line: the finding for which people read logs of many ranks. */
function Silent({ job, ranks, last, of, live, onRank }: SilentProps) {
  // The pace of the job, where it is known: of all sequences of a step, how fast they are seen.
  const pace = job.global_batch_tokens && job.throughput_tokens_per_second ? job.global_batch_tokens / job.throughput_tokens_per_second : 0;
  const found = silence(ranks, last, Math.max(LEAST_MARGIN_MS, pace * MARGIN_STEPS * 1_000));
  if (!found) return null;
  const nodes = [...new Set(of.filter((one) => found.ranks.includes(one.rank)).map((one) => one.node))];
  const never = found.ranks.every((rank) => !last.has(rank));
  return (
    <p className="job-silent" role="status" data-testid="silent-ranks">
      <strong>
        ▲ {found.ranks.length === 1 ? "Rank" : "Ranks"} {spans(found.ranks)}
      </strong>{" "}
      on {nodes.slice(0, 4).join(", ")}
      {nodes.length > 4 && ` and ${nodes.length - 4} more`} {never ? "said nothing at all" : "said nothing since the others' last lines"}: the other{" "}
      {ranks.length - found.ranks.length} {live ? "went on until" : "ended at"} <When at={new Date(found.othersAt).toISOString()} />.{" "}
      <button className="link" onClick={() => onRank(found.ranks.join(","))}>
        {found.ranks.length === 1 ? "Its" : "Their"} last lines
      </button>
    </p>
  );
}

function Ranks({ of, choice, onChange }: { of: readonly Writer[]; choice: string | undefined; onChange: (value: string | undefined) => void }) {
  const options = useMemo(() => choices(of), [of]);
  const value = choice ?? (options.some((one) => one.value === "all") ? "all" : String(of[0]?.rank ?? 0));
  const known = options.some((one) => one.value === value);
  return (
    <Select
      label="Ranks"
      value={value}
      onChange={(next) => onChange(next === "all" ? undefined : next)}
      options={known ? options : [{ value, label: `ranks ${value}` }, ...options]}
    />
  );
}

interface SelectProps {
  label: string;
  value: string;
  options: Choice[];
  onChange: (value: string) => void;
}

function Select({ label, value, options, onChange }: SelectProps) {
  const id = useId();
  return (
    <span className="row">
      <label htmlFor={id} className="muted">
        {label}
      </label>
      <select id={id} className="field job-select" value={value} onChange={(event) => onChange(event.target.value)}>
        {options.map((one) => (
          <option key={one.value} value={one.value}>
            {one.label}
          </option>
        ))}
      </select>
    </span>
  );
}

function Check({ label, on, onChange, disabled = false }: { label: string; on: boolean; onChange: (on: boolean) => void; disabled?: boolean }) {
  return (
    <label className="job-check">
      <input type="checkbox" checked={on} disabled={disabled} onChange={(event) => onChange(event.target.checked)} /> {label}
    </label>
  );
}
