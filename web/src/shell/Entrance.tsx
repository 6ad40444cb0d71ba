// What stands before the pages: whether the browser is logged in, and that the server does not answer where it does not.

import { type ReactNode, useEffect, useState } from "react";
import { Gate } from "./Gate";
import { useSilence } from "./silence";

interface Props {
  /** Resolves to whether the browser is logged in. */
  entering: Promise<boolean>;
  children: ReactNode;
}

export function Entrance({ entering, children }: Props) {
  const [inside, setInside] = useState<boolean>();
  useEffect(() => void entering.then(setInside), [entering]);
  if (inside === undefined) return <Waiting />;
  return inside ? children : <Gate onLogIn={() => setInside(true)} />;
}

/** Nothing, until it takes long: what comes at once flashes nothing. */
function Waiting() {
  const silent = useSilence(0);
  if (!silent) return null;
  return (
    <main className="gate" data-testid="no-answer">
      <div className="gate-box stack">
        <h1>Headway</h1>
        <p className="bad" role="alert">
          The server, or the database behind it, does not answer.
        </p>
        <p className="muted">It is asked again and again; the page opens by itself.</p>
      </div>
    </main>
  );
}
