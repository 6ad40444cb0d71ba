import { Menu, useMantineColorScheme } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { Overview } from "../api/client";
import { useConnection } from "../api/live";
import { useWhoami } from "../api/queries";
import { logOut } from "../api/session";
import { count } from "../lib/format";
import { singleKeys } from "./keys";

const CONNECTION = {
  ...{ connecting: ["◌", "muted", "connecting"], live: ["●", "good", "live"] },
  ...{ stale: ["◌", "bad", "stale"], lost: ["○", "bad", "reconnecting"] },
} as const;

interface Props {
  overview: Overview | undefined;
  /** Nothing new comes of the cluster, whatever the stream does. */
  stale: boolean;
  onCommand: () => void;
}

export function TopBar({ overview, stale, onCommand }: Props) {
  const connection = useConnection();
  const [glyph, tone, words] = CONNECTION[connection === "live" && stale ? "stale" : connection];
  return (
    <header className="bar">
      <Link to="/" className="bar-title">
        Headway
      </Link>
      <button className="button bar-search" onClick={onCommand}>
        <span className="muted">Search, go, do …</span> <kbd>Ctrl K</kbd>
      </button>
      <span className="space" />
      {overview && (
        <span className="bar-facts">
          {(overview.clock_speed ?? 1) !== 1 && (
            <span className="badge" title="nodes are emulated; an hour of theirs takes a minute at ×60">
              time runs ×{overview.clock_speed}
            </span>
          )}
          <Link to="/cluster" className="nowrap" title="GPUs that jobs hold, of those that are healthy">
            {count(overview.gpus_busy)} of {count(overview.gpus_healthy)} GPUs
          </Link>
          <Link to="/queue" className="nowrap">
            {count(overview.jobs_by_state.queued ?? 0)} waiting
          </Link>
          <PlanBadge overview={overview} />
        </span>
      )}
      <span className={`nowrap ${tone}`} data-testid="connection" title="the stream of changes">
        <span aria-hidden>{glyph}</span> {words}
      </span>
      <User />
    </header>
  );
}

function PlanBadge({ overview }: { overview: Overview }) {
  const waiting = overview.plans_waiting[0];
  if (waiting) {
    return (
      <Link to="/plan" search={{ plan: waiting }} className="badge warn">
        a plan waits for approval
      </Link>
    );
  }
  if (overview.policy_mode === "paused") return <span className="badge warn">planning is paused</span>;
  return null;
}

function User() {
  const { data } = useWhoami();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const keys = singleKeys.use();
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <button className="button">{data?.user ?? "user"} ▾</button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          {data?.user ?? data?.name}, {data?.scope}
        </Menu.Label>
        {(["auto", "light", "dark"] as const).map((scheme) => (
          <Menu.Item key={scheme} onClick={() => setColorScheme(scheme)} aria-current={colorScheme === scheme}>
            {colorScheme === scheme ? "✓ " : ""}
            {scheme === "auto" ? "theme of the system" : `${scheme} theme`}
          </Menu.Item>
        ))}
        <Menu.Item onClick={() => singleKeys.set(!keys)}>{keys ? "✓ single keys (g q, /, ?)" : "single keys are off"}</Menu.Item>
        <Menu.Divider />
        <Menu.Item component="a" href="/docs">
          REST API
        </Menu.Item>
        <Menu.Item onClick={() => void logOut().then(() => location.assign("/"))}>Log out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
