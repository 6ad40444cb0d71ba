// What the cluster goes by: policy, projects, people, tokens, and how nodes join. Everybody may read most of it; who may change what is said.

import { Link, useSearch } from "@tanstack/react-router";
import { useWhoami } from "../../api/queries";
import { NodesTab } from "./NodesTab";
import { PeopleTab } from "./PeopleTab";
import { PolicyTab } from "./PolicyTab";
import { ProjectsTab } from "./ProjectsTab";
import { TokensTab } from "./TokensTab";
import "./settings.css";

const TABS = [
  { tab: "policy", name: "Policy and site rules", content: PolicyTab },
  { tab: "projects", name: "Projects", content: ProjectsTab },
  { tab: "people", name: "People", content: PeopleTab },
  { tab: "tokens", name: "Tokens", content: TokensTab },
  { tab: "nodes", name: "Joining nodes", content: NodesTab },
] as const;

export default function SettingsPage() {
  const { tab = "policy", at } = useSearch({ from: "/settings" });
  const { data: who } = useWhoami();
  const Content = TABS.find((one) => one.tab === tab)?.content ?? PolicyTab;
  return (
    <div className="settings" data-testid="page-settings">
      <header className="page-head">
        <h1>Settings</h1>
        {who && (
          <span className="muted">
            you are {who.user ?? who.name}, with the role {who.scope}
          </span>
        )}
      </header>
      {at && <p className="muted settings-past">Settings are those of the present: what they were then is not kept, and nothing can be changed while the past is viewed.</p>}
      <nav className="tabs" aria-label="Settings">
        {TABS.map((one) => (
          <Link key={one.tab} to="/settings" search={{ tab: one.tab, at }} aria-current={tab === one.tab ? "page" : undefined}>
            {one.name}
          </Link>
        ))}
      </nav>
      <Content />
    </div>
  );
}
