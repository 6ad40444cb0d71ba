// Projects with their rules, and what they hold; who is a member of one; and a form for a project's rules.

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { count, gpuHours } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { Middle } from "../../parts/Name";
import { Close, Empty, Panel } from "../../parts/Panel";
import { type Project, SETTINGS_SECONDS, useProjects } from "./asked";
import { Members } from "./Members";
import { Delete, Openness, Rules } from "./ProjectActs";

const COLUMNS: readonly Column<Project>[] = [
  {
    id: "name",
    header: "Project",
    width: "180px",
    cell: (project) => (
      <Link to="/jobs" search={{ project: project.name }} className="named" title={`jobs of ${project.name}`}>
        <Middle text={project.name} />
      </Link>
    ),
  },
  { id: "parent", header: "Part of", width: "120px", from: "desktop", cell: (project) => project.parent ?? <span className="muted">–</span> },
  { id: "holds", header: "Holds", number: true, width: "90px", hint: "GPUs its jobs hold now, sub-projects included", cell: (project) => `${count(project.gpus)} GPUs` },
  { id: "quota", header: "Of right", number: true, width: "90px", hint: "quota: GPUs it may use of right", cell: (project) => limit(project.quota_gpus) },
  { id: "borrow", header: "May borrow", number: true, width: "90px", from: "tablet", hint: "beyond the quota, while nobody with a right to them waits", cell: (project) => count(project.borrow_gpus) },
  { id: "floor", header: "Sure of", number: true, width: "80px", from: "tablet", hint: "floor: GPUs its jobs are sure of while they ask for them", cell: (project) => count(project.floor_gpus) },
  { id: "weight", header: "Weight", number: true, width: "70px", from: "tablet", hint: "its share relative to its siblings", cell: (project) => String(project.weight) },
  { id: "user", header: "Per user", number: true, width: "80px", from: "desktop", hint: "most GPUs one of its users may hold", cell: (project) => limit(project.max_per_user_gpus) },
  { id: "used", header: "Used of late", number: true, width: "120px", from: "desktop", hint: "GPU-time that halves with every half-life of the policy", cell: (project) => gpuHours(project.decayed_gpu_hours) },
  { id: "open", header: "Open to", width: "150px", from: "tablet", cell: (project) => openTo(project) },
];

function limit(gpus: number | null | undefined): string {
  return gpus == null ? "no limit" : count(gpus);
}

export function openTo({ members = 0, private: hidden }: Project): string {
  if (members === 0) return hidden ? "its parents’ members" : "everybody";
  return `${count(members)} member${members === 1 ? "" : "s"}${hidden ? ", private" : ""}`;
}

export function ProjectsTab() {
  const projects = useProjects();
  const { item: name } = useSearch({ from: "/settings" });
  const navigate = useNavigate({ from: "/settings" });
  const choose = (item: string | undefined) => void navigate({ search: (before) => ({ ...before, item }), resetScroll: false });
  const chosen = projects.data?.items.find((project) => project.name === name);
  return (
    <div className={chosen ? "split" : undefined}>
      <Panel
        title="Projects with rules"
        id="projects"
        note={projects.data && `all ${count(projects.data.items.length)}; a project that only jobs name binds nothing`}
        asked={projects}
        everySeconds={SETTINGS_SECONDS}
        tools={
          <>
            <Rules projects={projects.data?.items ?? []} />
            <CopyAs command="headway project list" path="/api/v1/projects" />
          </>
        }
      >
        {({ items }) =>
          items.length === 0 ? (
            <Empty>
              No project has rules: whoever comes is served. An admin gives a project a quota, a floor and a weight here, or with <code>headway project create NAME --quota 64</code>.
            </Empty>
          ) : (
            <DataTable
              label="Projects"
              testId="projects-table"
              rows={items}
              columns={COLUMNS}
              keyOf={(project) => project.name}
              onOpen={(project) => choose(project.name === name ? undefined : project.name)}
              selected={name ?? ""}
            />
          )
        }
      </Panel>
      {chosen && <ProjectPanel key={chosen.name} project={chosen} projects={projects.data?.items ?? []} onClose={() => choose(undefined)} />}
    </div>
  );
}

function ProjectPanel({ project, projects, onClose }: { project: Project; projects: readonly Project[]; onClose: () => void }) {
  return (
    <section className="panel" aria-label={`Project ${project.name}`} data-testid="panel-project">
      <header>
        <h2>{project.name}</h2>
        <span className="muted">open to {openTo(project)}</span>
        <span className="space" />
        <Close onClose={onClose} />
      </header>
      <div className="stack">
        <div className="row">
          <Rules project={project} projects={projects} />
          <Openness project={project} />
          <Delete project={project} onDone={onClose} />
        </div>
        <Members project={project} />
        <p className="row">
          <Link to="/jobs" search={{ project: project.name }}>
            Its jobs
          </Link>
          <Link to="/queue" search={{ project: project.name }}>
            What of it waits
          </Link>
          <Link to="/reports" search={{ tab: "fairness" }}>
            What it was given
          </Link>
        </p>
      </div>
    </section>
  );
}
