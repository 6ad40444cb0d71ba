// How nodes become known: tokens that admit them, certificates that they have, and what signs those.

import { useState } from "react";
import { api, unwrap } from "../../api/client";
import type { components } from "../../api/schema";
import { count } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { type Column, DataTable } from "../../parts/DataTable";
import { Middle, NodeLink } from "../../parts/Name";
import { OnlyFor } from "../../parts/OnlyFor";
import { Empty, Panel } from "../../parts/Panel";
import { Ago, Until } from "../../parts/Time";
import { When } from "../../parts/When";
import { SETTINGS_SECONDS, done, useAuthorities, useCertificates, useJoinTokens, useRequest, why } from "./asked";
import { Deed } from "./Deed";
import { Secret } from "./Secret";

type Schemas = components["schemas"];
type JoinToken = Schemas["JoinToken"];
type Certificate = Schemas["NodeCertificate"];
type Authority = Schemas["NodeAuthority"];

const LIVES = [
  { seconds: 900, words: "15 minutes" },
  { seconds: 3_600, words: "an hour" },
  { seconds: 86_400, words: "a day" },
  { seconds: 604_800, words: "7 days" },
] as const;
const HEIGHT = 420;

export function NodesTab() {
  return (
    <div className="stack">
      <OnlyFor role="operator" what="Tokens that admit nodes">
        <JoinTokens />
      </OnlyFor>
      <Certificates />
      <Authorities />
    </div>
  );
}

const JOIN_TOKENS: readonly Column<JoinToken>[] = [
  { id: "node", header: "Admits", width: "180px", cell: (token) => (token.node ? <Middle text={token.node} /> : token.fleet ? "a fleet of emulated nodes" : "any node") },
  { id: "uses", header: "Uses left", number: true, width: "80px", cell: (token) => count(token.uses_left) },
  { id: "by", header: "Made by", width: "130px", from: "tablet", cell: (token) => token.created_by },
  { id: "ends", header: "Ends", width: "110px", cell: (token) => <Until at={token.expires_at} /> },
  { id: "id", header: "Id", width: "100px", from: "desktop", cell: (token) => <Short text={token.id} /> },
  { id: "acts", header: "Actions", width: "100px", cell: (token) => <RevokeToken token={token} /> },
];

function Short({ text }: { text: string }) {
  return (
    <span className="mono" title={text}>
      {text.slice(-8)}
    </span>
  );
}

function JoinTokens() {
  const tokens = useJoinTokens();
  return (
    <Panel
      title="Tokens that admit nodes"
      id="join-tokens"
      note={tokens.data && `all ${count(tokens.data.items.length)} that still admit somebody`}
      asked={tokens}
      everySeconds={SETTINGS_SECONDS}
      tools={
        <>
          <CreateToken />
          <CopyAs command="headway node token list" path="/api/v1/join-tokens" />
        </>
      }
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>
            No token admits anybody now. Make one, and use it on the node: <code>headway node join TOKEN --server URL</code>.
          </Empty>
        ) : (
          <DataTable label="Join tokens" testId="join-tokens-table" rows={items} columns={JOIN_TOKENS} keyOf={(token) => token.id} height={240} />
        )
      }
    </Panel>
  );
}

function CreateToken() {
  const [made, setMade] = useState<Schemas["CreatedJoinToken"]>();
  const [node, setNode] = useState("");
  const [fleet, setFleet] = useState(false);
  const [uses, setUses] = useState("1");
  const [life, setLife] = useState(0);
  const lasts = LIVES[life] ?? LIVES[0];
  const body = { fleet, ttl_s: lasts.seconds, uses: Number(uses), ...(node.trim() ? { node: node.trim() } : {}) };
  const request = useRequest(body, async (typed, doing) => (doing.dryRun ? null : unwrap(api.POST("/api/v1/join-tokens", { body: typed }))));
  const join = made && `sudo headway node join ${made.secret} --server ${made.agents_url}${made.token.fleet ? " --fleet --identity fleet.json" : ""}`;
  return (
    <>
      <Deed
        label="New join token"
        title="Make a token that admits nodes"
        role="operator"
        request={request}
        effect={() => (
          <p>
            {node.trim() ? `${node.trim()} alone` : fleet ? "A fleet of emulated nodes" : `Any ${Number(uses) === 1 ? "one node" : `${count(Number(uses))} nodes`}`} may join with it, for {lasts.words}. Its secret is
            shown once.
          </p>
        )}
        onDone={(answer) => answer && setMade(answer)}
      >
        <label className="act-field">
          <span>node</span>
          <input className="field" value={node} maxLength={128} placeholder="any" onChange={(event) => setNode(event.target.value)} />
          <span className="muted">whom alone it admits; of one that is known already the former certificate then opens nothing</span>
        </label>
        <label className="act-field">
          <span>admits</span>
          <input className="field settings-short" type="number" min={1} max={10_000} step={1} value={uses} onChange={(event) => setUses(event.target.value)} />
        </label>
        <label className="act-field">
          <span>lasts</span>
          <select className="field" value={life} onChange={(event) => setLife(Number(event.target.value))}>
            {LIVES.map((one, index) => (
              <option key={one.seconds} value={index}>
                {one.words}
              </option>
            ))}
          </select>
        </label>
        <label className="row settings-check">
          <input type="checkbox" checked={fleet} onChange={(event) => setFleet(event.target.checked)} />
          for a fleet of emulated nodes (headway agent --emulate)
        </label>
      </Deed>
      {made && <Secret title="A token that admits nodes is made" secret={made.secret} command={join} onClose={() => setMade(undefined)} />}
    </>
  );
}

function RevokeToken({ token }: { token: JoinToken }) {
  const request = useRequest(token.id, async (id, doing) => {
    if (doing.dryRun) return null;
    return done(api.DELETE("/api/v1/join-tokens/{id}", { params: { path: { id }, query: why(doing) } }));
  });
  return (
    <Deed
      label="Revoke"
      title="Revoke a token that admits nodes"
      role="operator"
      danger
      request={request}
      effect={() => <p>It admits nobody any more. Who has joined with it stays.</p>}
    />
  );
}

const CERTIFICATES: readonly Column<Certificate>[] = [
  {
    id: "name",
    header: "Node",
    width: "200px",
    cell: (one) => (one.fleet ? <Middle text={`${one.name}-… (a fleet)`} /> : <NodeLink node={one.id} name={one.name} />),
  },
  {
    id: "state",
    header: "State",
    width: "130px",
    cell: (one) =>
      one.revoked_at ? (
        <span className="bad" title={one.revoked_at}>
          ✕ revoked
        </span>
      ) : (
        <span className="good">✓ opens</span>
      ),
  },
  { id: "issued", header: "Issued", width: "120px", from: "tablet", cell: (one) => <When at={one.issued_at} /> },
  { id: "ends", header: "Ends", width: "110px", cell: (one) => (one.revoked_at ? <Ago at={one.revoked_at} /> : <Until at={one.expires_at} />) },
  { id: "epoch", header: "Joined", number: true, width: "80px", from: "desktop", hint: "how often it has joined", cell: (one) => (one.fleet ? "–" : `${count(one.epoch)}×`) },
  { id: "authority", header: "Signed by", width: "110px", from: "desktop", cell: (one) => (one.authority ? <Short text={one.authority} /> : <span className="muted">before a restore</span>) },
  { id: "acts", header: "Actions", width: "100px", cell: (one) => !one.revoked_at && <RevokeCertificate of={one} /> },
];

function Certificates() {
  const certificates = useCertificates();
  return (
    <Panel
      title="Certificates of nodes"
      id="certificates"
      note={certificates.data && `all ${count(certificates.data.items.length)}`}
      asked={certificates}
      everySeconds={SETTINGS_SECONDS}
      tools={<CopyAs command="headway node certificates" path="/api/v1/node-certificates" />}
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>No node has joined with a certificate. Operators make a join token above; nodes with an agents’ token have none.</Empty>
        ) : (
          <DataTable label="Certificates" testId="certificates-table" rows={items} columns={CERTIFICATES} keyOf={(one) => one.id} height={HEIGHT} over={(one) => one.revoked_at != null} />
        )
      }
    </Panel>
  );
}

function RevokeCertificate({ of }: { of: Certificate }) {
  const request = useRequest(of.id, async (node, doing) => {
    if (doing.dryRun) return null;
    return unwrap(api.DELETE("/api/v1/node-certificates/{node}", { params: { path: { node }, query: why(doing) } }));
  });
  return (
    <Deed
      label="Revoke"
      title={`Revoke the certificate of ${of.name}`}
      role="operator"
      danger
      typed={of.name}
      request={request}
      effect={() => (
        <p>
          {of.fleet ? "The sessions of all its nodes end" : "Its session ends"} within a second, and the certificate opens nothing any more. What runs there goes on until the node is lost or has joined again.
        </p>
      )}
    />
  );
}

const AUTHORITIES: readonly Column<Authority>[] = [
  { id: "fingerprint", header: "Fingerprint", width: "240px", cell: (one) => <span className="mono"><Middle text={one.fingerprint} /></span> },
  { id: "signs", header: "What it does", width: "130px", cell: (one) => (one.signs ? <span className="good">✓ signs</span> : <span className="muted">is believed</span>) },
  { id: "certificates", header: "Certificates", number: true, width: "100px", from: "tablet", hint: "nodes and fleets whose newest certificate is of it", cell: (one) => count(one.certificates) },
  { id: "ends", header: "Ends", width: "110px", cell: (one) => <Until at={one.expires_at} /> },
  { id: "acts", header: "Actions", width: "100px", cell: (one) => !one.signs && <Retire of={one} /> },
];

function Authorities() {
  const authorities = useAuthorities();
  return (
    <Panel
      title="What signs them"
      id="authorities"
      note={authorities.data && (authorities.data.agent_tokens ? "agents’ tokens are taken as well" : "agents’ tokens are not taken")}
      asked={authorities}
      everySeconds={SETTINGS_SECONDS}
      tools={<Replace />}
    >
      {({ items }) =>
        items.length === 0 ? (
          <Empty>Nothing signs certificates here: nodes come with agents’ tokens.</Empty>
        ) : (
          <DataTable label="Authorities" testId="authorities-table" rows={items} columns={AUTHORITIES} keyOf={(one) => one.fingerprint} height={200} />
        )
      }
    </Panel>
  );
}

function Replace() {
  const request = useRequest(null, async (_, doing) => (doing.dryRun ? null : unwrap(api.POST("/api/v1/node-authorities", {}))));
  return (
    <Deed
      label="Replace"
      title="Have a new authority sign"
      role="admin"
      danger
      request={request}
      effect={() => <p>A new one is made here and signs from now on; every node that is connected renews its certificate. The former is believed until what it has signed must have been renewed, or until it is retired.</p>}
    />
  );
}

function Retire({ of }: { of: Authority }) {
  const request = useRequest(of.fingerprint, async (fingerprint, doing) => {
    if (doing.dryRun) return null;
    return done(api.DELETE("/api/v1/node-authorities/{fingerprint}", { params: { path: { fingerprint }, query: why(doing) } }));
  });
  return (
    <Deed
      label="Retire"
      title="Retire an authority"
      role="admin"
      danger
      typed="retire"
      request={request}
      effect={() => (
        <p>
          Nothing that it has signed is believed any more. {of.certificates > 0 ? `▲ ${count(of.certificates)} nodes or fleets have not renewed since, and must join again.` : "No node still has a certificate of it."}
        </p>
      )}
    />
  );
}
