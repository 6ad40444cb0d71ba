import { useEffect, useState } from "react";
import { logIn, loginProvider, loginUrl } from "../api/session";

/** Asks to log in, through the identity provider where there is one or with an access token; nothing is shown before. The token is kept nowhere. */
export function Gate({ onLogIn }: { onLogIn: () => void }) {
  const [value, setValue] = useState("");
  const [refusal, setRefusal] = useState<string>();
  const [provider, setProvider] = useState<string>();
  useEffect(() => {
    // Without an answer there is the token still.
    loginProvider().then(setProvider, () => undefined);
  }, []);
  return (
    <main className="gate">
      <form
        className="gate-box stack"
        onSubmit={(event) => {
          event.preventDefault();
          logIn(value.trim()).then(onLogIn, (error: Error) => setRefusal(error.message));
        }}
      >
        <h1>Headway</h1>
        {provider && (
          <>
            <a className="button primary gate-wide" href={loginUrl(location)}>
              Log in with {provider}
            </a>
            <p className="muted gate-or">or</p>
          </>
        )}
        <p className="muted">
          Paste an access token. <code>headway up</code> prints a link that carries one.
        </p>
        <label className="stack">
          Access token
          <input
            className="field"
            type="password"
            autoComplete="off"
            value={value}
            autoFocus={!provider}
            aria-invalid={refusal !== undefined}
            onChange={(event) => setValue(event.target.value)}
          />
        </label>
        {refusal && (
          <p className="bad" role="alert">
            {refusal}
          </p>
        )}
        <button type="submit" className={`button gate-wide ${provider ? "" : "primary"}`} disabled={!value.trim()}>
          Open the cluster
        </button>
      </form>
    </main>
  );
}
