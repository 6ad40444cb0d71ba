// A secret that has just been made: it is shown this once, and kept nowhere.

import { Modal } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { copyText } from "../../lib/clipboard";

interface Props {
  title: string;
  secret: string;
  /** How it is used, as a line for a terminal. */
  command?: string | undefined;
  children?: ReactNode;
  onClose: () => void;
}

export function Secret({ title, secret, command, children, onClose }: Props) {
  return (
    <Modal opened onClose={onClose} title={title} centered size="lg" closeOnClickOutside={false} closeOnEscape={false} withCloseButton={false}>
      <div className="stack" data-testid="secret">
        <p>Copy it now. It is shown this once: nobody, not the server either, can show it again.</p>
        <Copied label="The secret" text={secret} />
        {command && <Copied label="On the machine that uses it" text={command} />}
        {children}
        <div className="row">
          <span className="space" />
          <button className="button primary" onClick={onClose}>
            I have kept it
          </button>
        </div>
      </div>
    </Modal>
  );
}

function Copied({ label, text }: { label: string; text: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <div>
      <p className="muted">{label}</p>
      <div className="settings-secret">
        <code>{text}</code>
        <button
          className="button"
          onClick={() => void copyText(text).then(setCopied)}
        >
          Copy
        </button>
      </div>
      <p className="muted" role="status">
        {copied && "copied"}
      </p>
    </div>
  );
}
