// What can be done with a project: make one, change its rules, make it private, take its rules away.

import { useState } from "react";
import { api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";
import type { Doing } from "../../parts/Act";
import { ForeseenOutcome } from "../../parts/Outcome";
import { type Foreseen, type Project, asked, useRequest } from "./asked";
import { Deed } from "./Deed";

type ProjectRequest = components["schemas"]["ProjectRequest"];

/** A project as it would be, with what would come of it. */
type Tried = Project & { foreseen?: Foreseen };

/** As it is typed; numbers that may be absent are absent where nothing is typed. */
interface Form {
  name: string;
  parent: string;
  quota: string;
  borrow: string;
  floor: string;
  weight: string;
  perUser: string;
}

const text = (value: number | null | undefined) => (value == null ? "" : String(value));

function formOf(project: Project | undefined): Form {
  return {
    name: project?.name ?? "",
    parent: project?.parent ?? "",
    quota: text(project?.quota_gpus),
    borrow: text(project?.borrow_gpus ?? 0),
    floor: text(project?.floor_gpus ?? 0),
    weight: text(project?.weight ?? 1),
    perUser: text(project?.max_per_user_gpus),
  };
}

function rulesOf(form: Form): ProjectRequest {
  const most = (typed: string) => (typed.trim() === "" ? null : Number(typed));
  return {
    parent: form.parent || null,
    quota_gpus: most(form.quota),
    borrow_gpus: Number(form.borrow),
    floor_gpus: Number(form.floor),
    weight: Number(form.weight),
    max_per_user_gpus: most(form.perUser),
  };
}

const versioned = (project: Project) => ({ "If-Match": `"${project.version}"` });

/** Makes a project where none is given. */
export function Rules({ project, projects }: { project?: Project; projects: readonly Project[] }) {
  // What is typed, and the project that it was made from: who has changed that meanwhile is not overwritten.
  const [edit, setEdit] = useState<{ form: Form; base: Project | undefined }>();
  const form = edit?.form ?? formOf(project);
  const base = edit ? edit.base : project;
  const set = (changes: Partial<Form>) => setEdit({ form: { ...form, ...changes }, base });
  const request = useRequest({ form, base }, async (typed, doing: Doing): Promise<Tried | null> => {
    const name = typed.form.name.trim();
    if (doing.dryRun && !name) return null;
    const header = typed.base ? versioned(typed.base) : { "If-None-Match": "*" };
    const params = { path: { project: name }, query: asked(doing), header };
    return unwrap(api.PUT("/api/v1/projects/{project}", { params, body: rulesOf(typed.form) }));
  });
  const field = (key: keyof Form, name: string, help: string, placeholder?: string) => (
    <label className="act-field">
      <span>{name}</span>
      <input className="field settings-number" inputMode="decimal" value={form[key]} placeholder={placeholder} onChange={(event) => set({ [key]: event.target.value })} />
      <span className="muted">{help}</span>
    </label>
  );
  const differences = base ? changesOf(base, form) : [];
  return (
    <Deed
      label={project ? "Change its rules" : "New project"}
      title={project ? `Change the rules of ${project.name}` : "Give a project rules"}
      role="admin"
      request={request}
      effect={(answer) => (
        <>
          {project && <p>{differences.length > 0 ? differences.join("; ") : "Nothing would change."}</p>}
          <ForeseenOutcome of={answer?.foreseen} />
        </>
      )}
      onDone={() => setEdit(undefined)}
    >
      {base && project && base.version !== project.version && (
        <p className="warn" role="alert">
          ▲ Somebody has changed it since.{" "}
          <button type="button" className="link" onClick={() => setEdit(undefined)}>
            Begin with what it is now
          </button>
        </p>
      )}
      {!project && (
        <label className="act-field">
          <span>name</span>
          <input className="field" value={form.name} maxLength={128} required placeholder="nlp" onChange={(event) => set({ name: event.target.value })} />
        </label>
      )}
      <label className="act-field">
        <span>part of</span>
        <select className="field" value={form.parent} onChange={(event) => set({ parent: event.target.value })}>
          <option value="">nothing</option>
          {projects
            .filter((one) => one.name !== project?.name)
            .map((one) => (
              <option key={one.name}>{one.name}</option>
            ))}
        </select>
      </label>
      {field("quota", "quota", "GPUs its jobs, sub-projects included, may use of right", "no limit")}
      {field("borrow", "borrow", "GPUs beyond it, while nobody with a right to them waits")}
      {field("floor", "floor", "GPUs its jobs are sure of while they ask for them")}
      {field("weight", "weight", "its share relative to its siblings")}
      {field("perUser", "per user", "most GPUs one of its users may hold", "no limit")}
    </Deed>
  );
}

function changesOf(project: Project, form: Form): string[] {
  const before = formOf(project);
  const names: Record<keyof Form, string> = { name: "name", parent: "part of", quota: "quota", borrow: "borrow", floor: "floor", weight: "weight", perUser: "per user" };
  return (Object.keys(names) as (keyof Form)[])
    .filter((key) => before[key] !== form[key].trim())
    .map((key) => `${names[key]}: ${before[key] || "none"} → ${form[key].trim() || "none"}`);
}

export function Openness({ project }: { project: Project }) {
  const hides = !project.private;
  const request = useRequest({ hides, version: project.version }, (_, doing) =>
    unwrap(api.PATCH("/api/v1/projects/{project}", { params: { path: { project: project.name }, query: asked(doing), header: versioned(project) }, body: { private: hides } })),
  );
  return (
    <Deed
      label={hides ? "Make it private" : "Make it open"}
      title={hides ? `Make ${project.name} private` : `Make ${project.name} open`}
      role="user"
      request={request}
      effect={() => <p>{hides ? "Only its members, operators and admins would see that its jobs exist." : "Everybody would see that its jobs exist; what they are stays its members’ where it has some."}</p>}
    />
  );
}

export function Delete({ project, onDone }: { project: Project; onDone: () => void }) {
  const request = useRequest({ version: project.version }, (_, doing) =>
    unwrap(api.DELETE("/api/v1/projects/{project}", { params: { path: { project: project.name }, query: asked(doing), header: versioned(project) } })),
  );
  return (
    <Deed
      label="Delete its rules"
      title={`Delete the rules of ${project.name}`}
      role="admin"
      danger
      typed={project.name}
      request={request}
      effect={(answer) => (
        <>
          <p>Its jobs go on, bound by nothing: no quota, no floor, no members.</p>
          <ForeseenOutcome of={(answer as Tried).foreseen} />
        </>
      )}
      onDone={onDone}
    />
  );
}
