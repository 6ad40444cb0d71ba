// Marks beside the values that a chart tells under its cursor, each a link to its event.

import { Link } from "@tanstack/react-router";
import type { Mark } from "./marks";

export function MarkLinks({ marks }: { marks: readonly Mark[] }) {
  return marks.map((mark, index) => (
    <span key={mark.seq ?? index}>
      {" · "}
      {mark.seq === undefined ? (
        mark.label
      ) : (
        <Link to="/events" search={{ event: String(mark.seq) }} className={mark.tone === "plain" ? undefined : mark.tone}>
          {mark.label}
        </Link>
      )}
    </span>
  ));
}
