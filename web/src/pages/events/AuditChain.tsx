// The chain of the audit: where it ends, whether it holds, and all of it as a file.

import { useEffect, useRef, useState } from "react";
import { copyText } from "../../lib/clipboard";
import { count, duration } from "../../lib/format";
import { CopyAs } from "../../parts/CopyAs";
import { Box, Failed, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";
import { type AuditVerification, AUDIT_SECONDS, useAuditHead, verify } from "./auditing";

const KEPT_BY: Record<string, string> = {
  role: "the database lets the server add lines, and change none",
  triggers: "the database's triggers; its role owns the table and could drop them",
};

export function AuditChain() {
  return (
    <div className="grid events-below">
      <Head />
      <Verify />
      <Box title="Export" id="audit-export" className="span-4">
        <p className="muted">All sealed lines, in the order of the chain. A file of lines is verified without a server: headway audit verify FILE.</p>
        <div className="row events-foot">
          <a className="button" href="/api/v1/audit/export?form=jsonl" download="audit.jsonl">
            As JSON lines
          </a>
          <a className="button" href="/api/v1/audit/export?form=csv" download="audit.csv">
            As CSV
          </a>
          <CopyAs command="headway audit export" path="/api/v1/audit/export" />
        </div>
      </Box>
    </div>
  );
}

function Head() {
  const head = useAuditHead();
  const [copied, setCopied] = useState(false);
  return (
    <Panel title="Where the chain ends" id="audit-head" className="span-4" asked={head} everySeconds={AUDIT_SECONDS}>
      {(data) => (
        <div className="stack">
          <p>
            {count(data.sealed)} lines are sealed
            {data.sealed_at && (
              <>
                , the last <Ago at={data.sealed_at} />
              </>
            )}
            ; {data.unsealed === 0 ? "none waits." : `${count(data.unsealed)} wait, the oldest for ${duration(data.lag_seconds)}.`}
          </p>
          <p className="muted">Lines are kept by {KEPT_BY[data.kept_by] ?? data.kept_by}.</p>
          {data.anchor ? (
            <>
              <code className="events-anchor">{data.anchor}</code>
              <div className="row">
                <button
                  className="button"
                  onClick={() => void copyText(data.anchor ?? "").then(setCopied)}
                >
                  Copy the head
                </button>
                <span className="muted" role="status">
                  {copied && "copied"}
                </span>
              </div>
              <p className="muted">Kept elsewhere, it tells later whether the end was cut off.</p>
            </>
          ) : (
            <p className="muted">No line is sealed yet.</p>
          )}
        </div>
      )}
    </Panel>
  );
}

type Progress = { lines: number; done?: AuditVerification; error?: Error };

function Verify() {
  const [head, setHead] = useState("");
  const [progress, setProgress] = useState<Progress>();
  const running = useRef<AbortController>(undefined);
  useEffect(() => () => running.current?.abort(), []);

  const run = async () => {
    running.current?.abort();
    const stop = new AbortController();
    running.current = stop;
    setProgress({ lines: 0 });
    try {
      const done = await verify(head.trim() || undefined, (lines) => setProgress({ lines }), stop.signal);
      setProgress({ lines: done.lines, done });
    } catch (error) {
      if (!stop.signal.aborted) setProgress({ lines: 0, error: error as Error });
    }
  };
  const busy = progress !== undefined && !progress.done && !progress.error;
  return (
    <Box title="Is it as it was sealed?" id="audit-verify" className="span-4">
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <label className="stack">
          <span>
            A head that you kept <span className="muted">(optional)</span>
          </span>
          <input className="field mono" value={head} placeholder="4711:9f86d0…" maxLength={120} onChange={(event) => setHead(event.target.value)} />
        </label>
        <div className="row">
          <button type="submit" className="button" disabled={busy}>
            Verify all lines
          </button>
          <CopyAs command={head.trim() ? `headway audit verify --head ${head.trim()}` : "headway audit verify"} />
        </div>
      </form>
      <div role="status" className="events-foot">
        {busy && <p className="muted">{count(progress.lines)} lines hold so far …</p>}
        {progress?.done && <Verdict of={progress.done} kept={head.trim() !== ""} />}
      </div>
      {progress?.error && <Failed error={progress.error} />}
    </Box>
  );
}

function Verdict({ of, kept }: { of: AuditVerification; kept: boolean }) {
  if (of.broken) {
    return (
      <p className="bad">
        ✕ Line {of.broken.id} is {of.broken.what.replaceAll("_", " ")}: {of.broken.detail}. {count(of.lines)} lines before it hold.
      </p>
    );
  }
  return (
    <p className="good">
      ✓ All {count(of.lines)} sealed lines are as they were sealed{kept && ", and the head that you kept is among them"}.
    </p>
  );
}
