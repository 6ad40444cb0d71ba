import { ActionIcon, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import type { Plan } from "../api/client";
import type { Connection } from "../api/stream";
import { logOut } from "../api/session";
import { percent } from "../lib/format";

const WORDS: Record<Connection, [string, string, string]> = {
  connecting: ["◌", "connecting", "muted"],
  live: ["●", "live", "good"],
  lost: ["○", "reconnecting", "warn"],
};

interface Props {
  connection: Connection;
  plan: Plan | undefined;
  onLogOut: () => void;
}

export function TopBar({ connection, plan, onLogOut }: Props) {
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const [glyph, word, tone] = WORDS[connection];
  return (
    <header className="bar">
      <h1>Headway</h1>
      <span className="pill" data-testid="connection">
        <span className={tone}>{glyph}</span> {word}
      </span>
      {plan && (
        <span className="pill" title={`plan ${plan.id}: ${plan.trigger}`}>
          plan: {plan.moves.length === 0 ? "no moves" : plan.moves.length === 1 ? "1 move" : `${plan.moves.length} moves`}{plan.gap === null ? "" : `, gap ${percent(plan.gap)}`}
        </span>
      )}
      <span className="space" />
      <a className="pill" href="/docs">
        API
      </a>
      <a className="pill" href="/licenses">
        Licences
      </a>
      <button
        className="pill"
        style={{ background: "none", cursor: "pointer" }}
        onClick={() => void logOut().then(onLogOut)}
      >
        Log out
      </button>
      <ActionIcon
        variant="default"
        aria-label={scheme === "dark" ? "Light theme" : "Dark theme"}
        onClick={() => setColorScheme(scheme === "dark" ? "light" : "dark")}
      >
        {scheme === "dark" ? "☀" : "☾"}
      </ActionIcon>
    </header>
  );
}
