// Who is a member of a project and with which role, those of what it is part of included.

import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "../../api/client";
import { useWhoami } from "../../api/queries";
import type { components } from "../../api/schema";
import { useCan } from "../../api/session";
import { word } from "../../lib/commands";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { Middle } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { type Project, SETTINGS_SECONDS, asked, useMembers, useRequest, useUsers } from "./asked";
import { Deed } from "./Deed";
import { RoleField } from "./RoleField";

type Schemas = components["schemas"];
type Member = Schemas["Member"];
type ProjectRole = Schemas["ProjectRole"];

const ROLES: readonly { role: ProjectRole; may: string }[] = [
  { role: "viewer", may: "reads its jobs" },
  { role: "user", may: "also submits to it" },
  { role: "admin", may: "also acts on its jobs and names its members" },
];

export function Members({ project }: { project: Project }) {
  const members = useMembers(project.name);
  const { data: who } = useWhoami();
  const everywhere = useCan("admin");
  const here = members.data?.items.some((member) => member.user === who?.user && member.role === "admin");
  const disabled = everywhere || here ? undefined : "for admins of the project, and admins";
  return (
    <Panel
      title="Members"
      id="members"
      className="settings-inner"
      note={members.data && count(members.data.items.length)}
      asked={members}
      everySeconds={SETTINGS_SECONDS}
      tools={<Name project={project} disabled={disabled} />}
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>It has no members, and is everybody’s. With the first one it is its members’ alone.</Empty>
        ) : (
          <>
            <ul className="settings-list">
              {items.map((member) => (
                <li key={`${member.project}/${member.user}`} className="row">
                  <Link to="/jobs" search={{ user: member.user, project: project.name }} className="named">
                    <Middle text={member.user} />
                  </Link>
                  <span title={ROLES.find(({ role }) => role === member.role)?.may}>{member.role}</span>
                  <span className="muted">
                    {member.project !== project.name && `of ${member.project}`} {member.from_groups && "by groups of the identity provider"}
                  </span>
                  <span className="space" />
                  {member.project === project.name && <Remove project={project} member={member} disabled={disabled} />}
                </li>
              ))}
            </ul>
            <CopyAs command={`headway project member list ${word(project.name)}`} path={`/api/v1/projects/${encodeURIComponent(project.name)}/members`} />
          </>
        )
      }
    </Panel>
  );
}

const versioned = (project: Project) => ({ "If-Match": `"${project.version}"` });

/** Gives somebody a role, who may have one already. */
function Name({ project, disabled }: { project: Project; disabled: string | undefined }) {
  const [user, setUser] = useState("");
  const [role, setRole] = useState<ProjectRole>("user");
  const users = useUsers();
  const request = useRequest({ user: user.trim(), role, version: project.version }, async (body, doing) => {
    if (doing.dryRun && !body.user) return null;
    const params = { path: { project: project.name, user: body.user }, query: asked(doing), header: versioned(project) };
    return unwrap(api.PUT("/api/v1/projects/{project}/members/{user}", { params, body: { role: body.role } }));
  });
  return (
    <Deed
      label="Name a member"
      title={`Give somebody a role in ${project.name}`}
      role="user"
      disabled={disabled}
      request={request}
      effect={() => (
        <p>
          {user.trim() || "Who is named"} {ROLES.find((one) => one.role === role)?.may}, here and in all that is part of it.{" "}
          {(project.members ?? 0) === 0 && <span className="warn">▲ With its first member the project is its members’ alone.</span>}
        </p>
      )}
      onDone={() => setUser("")}
    >
      <label className="act-field">
        <span>who</span>
        <input className="field" list="settings-users" value={user} maxLength={128} required placeholder="ada" onChange={(event) => setUser(event.target.value)} />
      </label>
      <datalist id="settings-users">
        {users.data?.items.map((one) => (
          <option key={one.name} value={one.name} />
        ))}
      </datalist>
      <RoleField value={role} roles={ROLES} onChange={setRole} />
    </Deed>
  );
}

function Remove({ project, member, disabled }: { project: Project; member: Member; disabled: string | undefined }) {
  const request = useRequest({ user: member.user, version: project.version }, ({ user }, doing) => {
    const params = { path: { project: project.name, user }, query: asked(doing), header: versioned(project) };
    return unwrap(api.DELETE("/api/v1/projects/{project}/members/{user}", { params }));
  });
  return (
    <Deed
      label="Remove"
      title={`Take ${member.user}’s role in ${project.name} away`}
      role="user"
      danger
      disabled={disabled}
      request={request}
      effect={() => (
        <p>
          {member.user} would be no {member.role} here any more; what the project is part of may lend a role still.
          {project.members === 1 && !project.private && " Without any member the project is everybody’s again."}
        </p>
      )}
    />
  );
}
