import { Button, PasswordInput } from "@mantine/core";
import { useState } from "react";
import { logIn } from "../api/session";

/** Asks for an access token and logs in with it; nothing is shown before. The token is kept nowhere. */
export function TokenGate({ onLogIn }: { onLogIn: () => void }) {
  const [value, setValue] = useState("");
  const [refusal, setRefusal] = useState<string>();
  return (
    <main style={{ display: "grid", placeItems: "center", minHeight: "100vh", padding: 16 }}>
      <form
        className="panel"
        style={{ width: "min(420px, 100%)", padding: 24 }}
        onSubmit={(event) => {
          event.preventDefault();
          logIn(value.trim()).then(onLogIn, (error: Error) => setRefusal(error.message));
        }}
      >
        <h1 style={{ fontSize: 18, marginTop: 0 }}>Headway</h1>
        <p className="muted">
          Paste an access token. <code>headway up</code> prints a link that carries one.
        </p>
        <PasswordInput
          label="Access token"
          value={value}
          error={refusal}
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
