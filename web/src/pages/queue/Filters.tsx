// The queue's filters: the counts by reason, and beside them project, owner and GPU type. Their state is the URL's.

import { count } from "../../lib/format";
import { Counts } from "../../parts/Counts";
import { Filter } from "../../parts/Filter";
import { reasonInWords } from "./columns";
import type { Queue, QueueFilter } from "./queries";

interface Props {
  filter: QueueFilter;
  choices: Queue["choices"] | undefined;
  types: readonly string[];
  onChange: (change: QueueFilter) => void;
}

export function Filters({ filter, choices, types, onChange }: Props) {
  const { code, project } = filter;
  const byCode = Object.entries(choices?.by_code ?? {});
  const byProject = Object.entries(choices?.by_project ?? {});
  // What can never run comes first: nothing but somebody's edit helps it.
  byCode.sort(([one, { jobs }], [other, { jobs: more }]) => Number(other === "never") - Number(one === "never") || more - jobs);
  byProject.sort(([one], [other]) => one.localeCompare(other));
  const projects = byProject.map(([name]) => name);
  return (
    <div className="queue-filters">
      <Counts
        label="Reasons why they wait"
        testId="reason-counts"
        counts={byCode.map(([reason, { jobs, gpus }]) => ({
          key: reason,
          label: (
            <>
              {reason === "never" && <span aria-hidden>✕</span>} {reasonInWords(reason)}
            </>
          ),
          count: jobs,
          title: `${count(gpus)} GPUs at least`,
          bad: reason === "never",
        }))}
        pressed={(reason) => reason === code}
        onPress={(reason) => onChange({ code: reason === code ? undefined : reason })}
      />
      <div className="row">
        <select className="field" aria-label="Project" value={project ?? ""} onChange={(event) => onChange({ project: event.target.value || undefined })}>
          <option value="">all projects</option>
          {project !== undefined && !projects.includes(project) && <option value={project}>{project} (0)</option>}
          {byProject.map(([name, { jobs }]) => (
            <option key={name} value={name}>
              {name} ({jobs})
            </option>
          ))}
        </select>
        <select className="field" aria-label="GPU type" value={filter.type ?? ""} onChange={(event) => onChange({ type: event.target.value || undefined })}>
          <option value="">any GPU type</option>
          {filter.type !== undefined && !types.includes(filter.type) && <option value={filter.type}>{filter.type}</option>}
          {types.map((type) => (
            <option key={type} value={type}>
              {type}
            </option>
          ))}
        </select>
        <Filter first label="Part of the name" hint="in any case (/)" value={filter.q} onChange={(q) => onChange({ q })} />
        <Filter label="Owner" hint="the whole name of who has submitted" value={filter.user} onChange={(user) => onChange({ user })} />
        {Object.values(filter).some((value) => value !== undefined) && (
          <button className="link" onClick={() => onChange({ code: undefined, project: undefined, user: undefined, type: undefined, q: undefined })}>
            Clear filters
          </button>
        )}
      </div>
    </div>
  );
}
