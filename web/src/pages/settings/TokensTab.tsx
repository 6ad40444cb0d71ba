// Access tokens and browsers that are logged in: one's own, and for admins everybody's. A token's secret is shown once, when it is made.

import { useState } from "react";
import { api, unwrap } from "../../api/client";
import { useWhoami } from "../../api/queries";
import type { components } from "../../api/schema";
import { useCan } from "../../api/session";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { Middle } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { Ago, Until } from "../../parts/Time";
import { When } from "../../parts/When";
import { SETTINGS_SECONDS, type Token, done, useRequest, useSessions, useTokens, why } from "./asked";
import { Deed } from "./Deed";
import { Secret } from "./Secret";

type Schemas = components["schemas"];
type BrowserSession = Schemas["BrowserSession"];

const SCOPES = ["agent", "viewer", "user", "operator", "admin"] as const;
const LIVES = [
  { seconds: 86_400, words: "a day" },
  { seconds: 30 * 86_400, words: "30 days" },
  { seconds: 90 * 86_400, words: "90 days" },
  { seconds: 365 * 86_400, words: "a year" },
  { seconds: undefined, words: "until it is revoked" },
] as const;
const HEIGHT = 360;

const TOKENS: readonly Column<Token>[] = [
  { id: "name", header: "Token", width: "180px", cell: (token) => <Middle text={token.name} /> },
  { id: "user", header: "Whose", width: "130px", cell: (token) => token.user ?? <span className="muted">an agent’s</span> },
  { id: "scope", header: "Opens", width: "90px", cell: (token) => token.scope },
  { id: "id", header: "Id", width: "100px", from: "desktop", cell: (token) => <span className="mono" title={token.id}>{token.id.slice(-8)}</span> },
  { id: "made", header: "Made", width: "120px", from: "tablet", cell: (token) => <When at={token.created_at} /> },
  { id: "ends", header: "Ends", width: "120px", from: "tablet", cell: (token) => <Ends at={token.expires_at} /> },
  { id: "acts", header: "Actions", width: "100px", cell: (token) => <Revoke token={token} /> },
];

function Ends({ at }: { at: string | null | undefined }) {
  if (!at) return <span className="muted">when revoked</span>;
  return <Until at={at} />;
}

export function TokensTab() {
  return (
    <div className="stack">
      <Tokens />
      <Sessions />
    </div>
  );
}

function Tokens() {
  const tokens = useTokens();
  const all = useCan("admin");
  return (
    <Panel
      title={all ? "Everybody’s tokens" : "Your tokens"}
      id="tokens"
      note={tokens.data && (tokens.data.next_cursor ? `the newest ${count(tokens.data.items.length)}; there are older ones` : `all ${count(tokens.data.items.length)}`)}
      asked={tokens}
      everySeconds={SETTINGS_SECONDS}
      tools={
        <>
          <Create />
          <CopyAs command="headway token list" path="/api/v1/auth/tokens" />
        </>
      }
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>You have no token. Programs and the command line use one: make one here, or log in with headway login.</Empty>
        ) : (
          <DataTable label="Tokens" testId="tokens-table" rows={items} columns={TOKENS} keyOf={(token) => token.id} height={HEIGHT} />
        )
      }
    </Panel>
  );
}

function Create() {
  const { data: who } = useWhoami();
  const others = useCan("admin");
  const [made, setMade] = useState<{ secret: string; token: Token }>();
  const [name, setName] = useState("");
  const [user, setUser] = useState("");
  const [scope, setScope] = useState("");
  const [life, setLife] = useState(2);
  const own = SCOPES.indexOf((who?.scope ?? "viewer") as (typeof SCOPES)[number]);
  const scopes = SCOPES.filter((one, index) => index <= own && (one !== "agent" || others));
  const opens = (scope || who?.scope || "viewer") as (typeof SCOPES)[number];
  const body = {
    name: name.trim(),
    scope: opens,
    ...(others && user.trim() && opens !== "agent" ? { user: user.trim() } : {}),
    ...(LIVES[life]?.seconds ? { ttl_s: LIVES[life].seconds } : { never_expires: true }),
  };
  const request = useRequest(body, async (typed, doing) => (doing.dryRun ? null : unwrap(api.POST("/api/v1/auth/tokens", { body: typed }))));
  return (
    <>
      <Deed
        label="New token"
        title="Make a token"
        role="viewer"
        request={request}
        effect={() => (
          <p>
            It opens what {opens === "agent" ? "an agent may" : `the role ${opens} may`}, {LIVES[life]?.seconds ? `for ${LIVES[life].words}` : "until it is revoked"}. Its secret is shown once.
          </p>
        )}
        onDone={(answer) => {
          if (answer) setMade(answer);
          setName("");
        }}
      >
        <label className="act-field">
          <span>name</span>
          <input className="field" value={name} maxLength={128} required placeholder="ci" onChange={(event) => setName(event.target.value)} />
          <span className="muted">a label to know it by</span>
        </label>
        {others && opens !== "agent" && (
          <label className="act-field">
            <span>whose</span>
            <input className="field" value={user} maxLength={128} placeholder={`yours (${who?.user ?? ""})`} onChange={(event) => setUser(event.target.value)} />
            <span className="muted">who is not there is made, with what the token opens as role</span>
          </label>
        )}
        <label className="act-field">
          <span>opens</span>
          <select className="field" value={opens} onChange={(event) => setScope(event.target.value)}>
            {scopes.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <label className="act-field">
          <span>lasts</span>
          <select className="field" value={life} onChange={(event) => setLife(Number(event.target.value))}>
            {LIVES.map((one, index) => (
              <option key={one.words} value={index}>
                {one.words}
              </option>
            ))}
          </select>
        </label>
      </Deed>
      {made && (
        <Secret title={`The token “${made.token.name}” is made`} secret={made.secret} onClose={() => setMade(undefined)}>
          <p className="muted">The command line takes it from the environment: HEADWAY_TOKEN.</p>
        </Secret>
      )}
    </>
  );
}

function Revoke({ token }: { token: Token }) {
  const request = useRequest(token.id, async (id, doing) => {
    if (doing.dryRun) return null;
    return done(api.DELETE("/api/v1/auth/tokens/{id}", { params: { path: { id }, query: why(doing) } }));
  });
  return (
    <Deed
      label="Revoke"
      title={`Revoke the token “${token.name}”`}
      role="viewer"
      danger
      request={request}
      effect={() => (
        <p>
          It opens nothing any more at once: streams, followed logs and browsers that it opened end within a second. {token.scope === "agent" && "Nodes that speak with it are out of contact then."}
        </p>
      )}
    />
  );
}

const SESSIONS: readonly Column<BrowserSession>[] = [
  { id: "user", header: "Whose", width: "160px", cell: (session) => session.user },
  { id: "this", header: "Which", width: "130px", cell: (session) => (session.current ? "this browser" : <span className="mono">{session.id.slice(-8)}</span>) },
  { id: "made", header: "Logged in", width: "120px", from: "tablet", cell: (session) => <When at={session.created_at} /> },
  { id: "used", header: "Used", width: "120px", cell: (session) => <Ago at={session.used_at} /> },
  { id: "ends", header: "Ends", width: "120px", from: "tablet", cell: (session) => <Until at={session.expires_at} /> },
  { id: "acts", header: "Actions", width: "100px", cell: (session) => <End session={session} /> },
];

function Sessions() {
  const sessions = useSessions();
  return (
    <Panel
      title="Browsers that are logged in"
      id="sessions"
      note={sessions.data && `all ${count(sessions.data.items.length)}`}
      asked={sessions}
      everySeconds={SETTINGS_SECONDS}
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>No browser is logged in.</Empty>
        ) : (
          <DataTable label="Browsers" testId="sessions-table" rows={items} columns={SESSIONS} keyOf={(session) => session.id} height={HEIGHT} />
        )
      }
    </Panel>
  );
}

function End({ session }: { session: BrowserSession }) {
  const request = useRequest(session.id, async (id, doing) => {
    if (doing.dryRun) return null;
    return done(api.DELETE("/api/v1/auth/sessions/{id}", { params: { path: { id }, query: why(doing) } }));
  });
  return (
    <Deed
      label="Log out"
      title={session.current ? "Log out of this browser" : `Log ${session.user} out of a browser`}
      role="viewer"
      danger={!session.current}
      request={request}
      effect={() => <p>{session.current ? "You would have to log in again here." : "Whoever uses it has to log in again."}</p>}
      onDone={() => session.current && location.assign("/")}
    />
  );
}
