import { useState } from "react";
import { copyText } from "../lib/clipboard";

/** The same from a terminal: the command line, or curl. */
export function CopyAs({ command, path }: { command: string; path?: string }) {
  const [copied, setCopied] = useState<string>();
  const copy = async (what: string, text: string) => {
    setCopied((await copyText(text)) ? `${what} copied` : "not copied: the browser refuses");
    setTimeout(() => setCopied(undefined), 2_000);
  };
  const curl = path && `curl -H "Authorization: Bearer $HEADWAY_TOKEN" '${location.origin}${path}'`;
  return (
    <span className="row">
      <button className="link" title={command} onClick={() => void copy("CLI", command)}>
        copy as CLI
      </button>
      {curl && (
        <button className="link" title={curl} onClick={() => void copy("curl", curl)}>
          curl
        </button>
      )}
      <span role="status" className="muted">
        {copied}
      </span>
    </span>
  );
}
