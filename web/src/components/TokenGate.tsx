import { Button, PasswordInput } from "@mantine/core";
import { useState } from "react";

/** Asks for the access token; nothing is shown without one. */
export function TokenGate({ onToken }: { onToken: (token: string) => void }) {
  const [value, setValue] = useState("");
  return (
    <main style={{ display: "grid", placeItems: "center", minHeight: "100vh", padding: 16 }}>
      <form
        className="panel"
        style={{ width: "min(420px, 100%)", padding: 24 }}
        onSubmit={(event) => {
          event.preventDefault();
          if (value.trim()) onToken(value);
        }}
      >
        <h1 style={{ fontSize: 18, marginTop: 0 }}>Headway</h1>
        <p className="muted">
          Paste an access token. <code>headway up</code> prints a link that carries one.
        </p>
        <PasswordInput
          label="Access token"
          value={value}
          autoFocus
          onChange={(event) => setValue(event.currentTarget.value)}
        />
        <Button type="submit" mt="md" fullWidth disabled={!value.trim()}>
          Open the cluster
        </Button>
      </form>
    </main>
  );
}
