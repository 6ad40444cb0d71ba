import { Button, Divider, PasswordInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { logIn, loginProvider, loginUrl } from "../api/session";

/** Asks to log in, through the identity provider where there is one or with an access token; nothing is shown before. The token is kept nowhere. */
export function TokenGate({ onLogIn }: { onLogIn: () => void }) {
  const [value, setValue] = useState("");
  const [refusal, setRefusal] = useState<string>();
  const [provider, setProvider] = useState<string>();
  useEffect(() => {
    // Without an answer there is the token still.
    loginProvider().then(setProvider, () => undefined);
  }, []);
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
        {provider && (
          <>
            <Button component="a" href={loginUrl(location)} fullWidth>
              Log in with {provider}
            </Button>
            <Divider my="md" label="or" />
          </>
        )}
        <p className="muted">
          Paste an access token. <code>headway up</code> prints a link that carries one.
        </p>
        <PasswordInput
          label="Access token"
          value={value}
          error={refusal}
          autoFocus={!provider}
          onChange={(event) => setValue(event.currentTarget.value)}
        />
        <Button type="submit" mt="md" fullWidth variant={provider ? "default" : "filled"} disabled={!value.trim()}>
          Open the cluster
        </Button>
      </form>
    </main>
  );
}
