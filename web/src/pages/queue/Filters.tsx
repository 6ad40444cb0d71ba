// The queue's filters: the counts by reason, and beside them project, owner and GPU type. Their state is the URL's.

import type { components } from "../../api/schema";
import { count } from "../../lib/format";
import { Counts } from "../../parts/Counts";
import { Filter } from "../../parts/Filter";
import { reasonInWords } from "./columns";
import { type QueueFilter, useQueueTotals } from "./queries";

type Totals = components["schemas"]["QueueTotals"];

interface Props {
  filter: QueueFilter;
  /** Of what the filter admits. */
  totals: Totals | undefined;
  types: readonly string[];
  onChange: (change: QueueFilter) => void;
}

export function Filters({ filter, totals, types, onChange }: Props) {
  const { code, project } = filter;
  // What each reason and each project would show, the others' filters kept.
  const aroundCode = useQueueTotals({ ...filter, code: undefined }, code !== undefined).data;
  const aroundProject = useQueueTotals({ ...filter, project: undefined }, project !== undefined).data;
  const byCode = Object.entries((code === undefined ? totals : aroundCode)?.by_code ?? {});
  const byProject = Object.entries((project === undefined ? totals : aroundProject)?.by_project ?? {});
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
        <Filter first label="Owner" hint="the whole name of who has submitted (/)" value={filter.user} onChange={(user) => onChange({ user })} />
        {Object.values(filter).some((value) => value !== undefined) && (
          <button className="link" onClick={() => onChange({ code: undefined, project: undefined, user: undefined, type: undefined })}>
            Clear filters
          </button>
        )}
      </div>
    </div>
  );
}
