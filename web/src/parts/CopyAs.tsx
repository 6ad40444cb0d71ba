import { useState } from "react";

/** The same from a terminal: the command line, or curl. */
export function CopyAs({ command, path }: { command: string; path?: string }) {
  const [copied, setCopied] = useState<string>();
  const copy = (what: string, text: string) => {
    void navigator.clipboard?.writeText(text);
    setCopied(what);
    setTimeout(() => setCopied(undefined), 2_000);
  };
  const curl = path && `curl -H "Authorization: Bearer $HEADWAY_TOKEN" '${location.origin}${path}'`;
  return (
    <span className="row">
      <button className="link" title={command} onClick={() => copy("CLI", command)}>
        copy as CLI
      </button>
      {curl && (
        <button className="link" title={curl} onClick={() => copy("curl", curl)}>
          curl
        </button>
      )}
      <span role="status" className="muted">
        {copied && `${copied} copied`}
      </span>
    </span>
  );
}
