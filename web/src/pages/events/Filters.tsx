// What the log is filtered by, as chips, and a field that adds another. Filters stand in the URL; the page says how.

import { type FormEvent, type ReactNode, useId, useState } from "react";
import { type Job, api, unwrap } from "../../api/client";
import { State } from "../../parts/State";
import { useJobName } from "./log";

export type Kind = "verb" | "actor" | "job" | "node";

interface KindShown {
  kind: Kind;
  /** As the page calls it. */
  name: string;
  example: string;
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const JOBS_OFFERED = 8;

interface Props {
  kinds: readonly KindShown[];
  /** What to offer of the first kind. */
  known: readonly string[];
  /** May reject, with why it cannot be. */
  onAdd: (kind: Kind, value: string) => void | Promise<void>;
  children?: ReactNode;
}

export function Filters({ kinds, known, onAdd, children }: Props) {
  const [kind, setKind] = useState<Kind>("verb");
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState<string>();
  const [jobs, setJobs] = useState<Job[]>();
  const list = useId();
  const shown = kinds.find((one) => one.kind === kind) ?? kinds[0]!;

  const clear = () => {
    setWrong(undefined);
    setJobs(undefined);
  };
  const add = async (value: string) => {
    clear();
    try {
      await onAdd(kind, value);
      setText("");
    } catch (error) {
      setWrong((error as Error).message);
    }
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const value = text.trim();
    if (!value) return;
    if (kind !== "job" || UUID.test(value)) return add(value);
    clear();
    try {
      const found = await findJobs(value);
      if (found.length === 1) return await add(found[0]!.id);
      if (found.length === 0) setWrong(`No job is called “${value}”.`);
      else setJobs(found);
    } catch (error) {
      setWrong((error as Error).message);
    }
  };

  return (
    <div className="events-filters">
      <form className="row" onSubmit={(event) => void submit(event)}>
        <select
          className="field"
          aria-label="Filter by"
          value={kind}
          onChange={(event) => {
            setKind(event.target.value as Kind);
            clear();
          }}
        >
          {kinds.map((one) => (
            <option key={one.kind} value={one.kind}>
              {one.name}
            </option>
          ))}
        </select>
        <input
          className="field events-filter"
          data-filter
          aria-label={`Only this ${shown.name}`}
          placeholder={shown.example}
          list={kind === "verb" ? list : undefined}
          value={text}
          maxLength={200}
          onChange={(event) => setText(event.target.value)}
        />
        <datalist id={list}>
          {known.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
        <button type="submit" className="button" disabled={!text.trim()}>
          Add filter
        </button>
        {children}
      </form>
      {wrong && (
        <p className="bad" role="alert">
          {wrong}
        </p>
      )}
      {jobs && (
        <ul className="events-found" aria-label={`Jobs called like “${text}”`}>
          {jobs.map((job) => (
            <li key={job.id}>
              <button className="link" onClick={() => void add(job.id)}>
                {job.name} <span className="mono">{job.id.slice(-8)}</span>
              </button>{" "}
              <State state={job.state} />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** By a part of the name, or by the end or the beginning of the id. */
async function findJobs(text: string): Promise<Job[]> {
  const ask = async (query: { q: string } | { id: string }) => {
    const answer = await unwrap(api.GET("/api/v1/jobs", { params: { query: { ...query, limit: JOBS_OFFERED } as never } }));
    return answer.items as Job[];
  };
  const byName = await ask({ q: text });
  if (byName.length > 0 || !/^[0-9a-f-]{6,}$/i.test(text)) return byName;
  return ask({ id: text });
}

/** A filter that is set; pressing the cross takes it away. */
export function Chip({ kind, onRemove, children }: { kind: string; onRemove: () => void; children: string }) {
  return (
    <span className="events-chip" data-testid={`chip-${kind}`}>
      <span className="muted">{kind}</span> {children}
      <button type="button" onClick={onRemove} aria-label={`Do not filter by ${kind} ${children}`}>
        ×
      </button>
    </span>
  );
}

export function JobChip({ id, onRemove }: { id: string; onRemove: () => void }) {
  const { data } = useJobName(id);
  return (
    <Chip kind="job" onRemove={onRemove}>
      {data ?? id.slice(-8)}
    </Chip>
  );
}
