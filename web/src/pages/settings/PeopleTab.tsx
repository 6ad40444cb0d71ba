// Users: the most that each one's tokens open, what they have, and who they are at the identity provider.

import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "../../api/client";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { Middle } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import { SETTINGS_SECONDS, type User, done, useRequest, useUsers, why } from "./asked";
import { Deed } from "./Deed";
import { RoleField } from "./RoleField";

const ROLES = [
  { role: "viewer", may: "looks at the cluster" },
  { role: "user", may: "also submits jobs and acts on their own" },
  { role: "operator", may: "also acts on nodes, plans, reservations and the policy, on all jobs, and reads the audit" },
  { role: "admin", may: "also makes users, gives roles, sets projects’ rules" },
] as const;
type Role = (typeof ROLES)[number]["role"];

const COLUMNS: readonly Column<User>[] = [
  {
    id: "name",
    header: "User",
    width: "180px",
    cell: (user) => (
      <Link to="/jobs" search={{ user: user.name }} className="named" title={`jobs of ${user.name}`}>
        <Middle text={user.name} />
      </Link>
    ),
  },
  { id: "role", header: "Role", width: "90px", cell: (user) => <span title={ROLES.find(({ role }) => role === user.role)?.may}>{user.role}</span> },
  { id: "from", header: "Given by", width: "100px", from: "desktop", cell: (user) => (user.role_from === "groups" ? "groups" : "hand") },
  { id: "linked", header: "Logs in by", width: "130px", from: "tablet", cell: (user) => (user.linked ? "identity provider" : "tokens alone") },
  { id: "tokens", header: "Tokens", number: true, width: "70px", from: "tablet", hint: "that open something", cell: (user) => count(user.tokens) },
  { id: "jobs", header: "Unfinished jobs", number: true, width: "140px", from: "tablet", hint: "of those that the user may have", cell: (user) => load(user) },
  { id: "made", header: "Since", width: "120px", from: "desktop", cell: (user) => <When at={user.created_at} /> },
  {
    id: "acts",
    header: "Actions",
    width: "230px",
    cell: (user) => (
      <span className="row settings-acts">
        <SetRole user={user} />
        {user.linked ? <Unlink user={user} /> : <LinkTo user={user} />}
      </span>
    ),
  },
];

function load({ used, quota }: User): string {
  if (!used) return "not yours to know";
  return `${count(used.unfinished_jobs)} of ${count(quota?.unfinished_jobs)}`;
}

export function PeopleTab() {
  const users = useUsers();
  return (
    <Panel
      title="People"
      id="people"
      note={users.data && `all ${count(users.data.items.length)}`}
      asked={users}
      everySeconds={SETTINGS_SECONDS}
      tools={
        <>
          <SetRole />
          <CopyAs command="headway user list" path="/api/v1/users" />
        </>
      }
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>There are no users. An admin makes one here, or with a first token: headway token create first --user ada --scope user.</Empty>
        ) : (
          <DataTable label="Users" testId="people-table" rows={items} columns={COLUMNS} keyOf={(user) => user.name} />
        )
      }
    </Panel>
  );
}

/** Gives a role; makes a user where none is given. */
function SetRole({ user }: { user?: User }) {
  const [name, setName] = useState(user?.name ?? "");
  const [role, setRole] = useState<Role>((user?.role as Role | undefined) ?? "user");
  const request = useRequest({ name: name.trim(), role }, async (body, doing) => {
    if (doing.dryRun) return null;
    const params = { path: { user: body.name }, query: why(doing) };
    return unwrap(api.PUT("/api/v1/users/{user}", { params, body: { role: body.role } }));
  });
  const lower = user && ROLES.findIndex((one) => one.role === role) < ROLES.findIndex((one) => one.role === user.role);
  return (
    <Deed
      label={user ? "Role" : "New user"}
      title={user ? `Change the role of ${user.name}` : "Make a user"}
      role="admin"
      request={request}
      effect={() => (
        <p>
          {name.trim() || "The user"} {ROLES.find((one) => one.role === role)?.may}.{" "}
          {lower && <span className="warn">▲ Tokens that open more open no more than this at once.</span>}
          {user?.role_from === "groups" && <span className="warn"> ▲ The role is given by groups; from now on it is a hand’s, and no login changes it.</span>}
          {!user && " What opens anything is a token: make one under Tokens."}
        </p>
      )}
      onDone={() => !user && setName("")}
    >
      {!user && (
        <label className="act-field">
          <span>name</span>
          <input className="field" value={name} maxLength={128} required placeholder="ada" onChange={(event) => setName(event.target.value)} />
        </label>
      )}
      <RoleField value={role} roles={ROLES} onChange={setRole} />
    </Deed>
  );
}

function LinkTo({ user }: { user: User }) {
  const [subject, setSubject] = useState("");
  const [byGroups, setByGroups] = useState(false);
  const request = useRequest({ subject: subject.trim(), byGroups }, async (body, doing) => {
    if (doing.dryRun) return null;
    const params = { path: { user: user.name }, query: why(doing) };
    return unwrap(api.PUT("/api/v1/users/{user}/identity", { params, body: { subject: body.subject, ...(body.byGroups ? { role_from: "groups" as const } : {}) } }));
  });
  return (
    <Deed
      label="Link"
      title={`Say who ${user.name} is at the identity provider`}
      role="admin"
      request={request}
      effect={() => <p>This person would log in as {user.name}, whatever name the provider gives. A login that is refused says the subject.</p>}
    >
      <label className="act-field">
        <span>subject</span>
        <input className="field mono" value={subject} maxLength={255} required onChange={(event) => setSubject(event.target.value)} />
        <span className="muted">as the provider calls the person (sub)</span>
      </label>
      <label className="row settings-check">
        <input type="checkbox" checked={byGroups} onChange={(event) => setByGroups(event.target.checked)} />
        each login sets the role anew, by the person’s groups
      </label>
    </Deed>
  );
}

function Unlink({ user }: { user: User }) {
  const request = useRequest(user.name, async (name, doing) => {
    if (doing.dryRun) return null;
    return done(api.DELETE("/api/v1/users/{user}/identity", { params: { path: { user: name }, query: why(doing) } }));
  });
  return (
    <Deed
      label="Unlink"
      title={`${user.name} is nobody at the identity provider any more`}
      role="admin"
      danger
      request={request}
      effect={() => <p>What logins have opened ends at once, with what groups gave in projects. The role stays, by hand.</p>}
    />
  );
}
