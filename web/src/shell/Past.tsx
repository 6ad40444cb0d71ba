import { Link } from "@tanstack/react-router";
import { absolute } from "../lib/format";
import { Ago } from "../parts/Time";

/** Says that the pages show a past moment. Nothing can be done there. */
export function Past({ at }: { at: string }) {
  return (
    <div className="banner past" role="status" data-testid="past">
      Viewing {absolute(at)}, <Ago at={at} />.{" "}
      <Link to="." search={(before) => ({ ...before, at: undefined })}>
        Back to the present
      </Link>{" "}
      <span className="muted">(L)</span>
    </div>
  );
}
