// Names on one line: what does not fit goes from the middle, since what tells names apart stands at their ends. The whole shows on hover and focus.

import { Link } from "@tanstack/react-router";
import { colourOf, textureOf } from "../lib/colour";
import "./name.css";

const TAIL = 8;

export function Middle({ text }: { text: string }) {
  // By code points: half of a character is none.
  const points = [...text];
  const tail = points.length > TAIL * 2 ? points.slice(-TAIL).join("") : "";
  return (
    <span className="middle" title={text}>
      <span className="middle-head">{tail ? points.slice(0, -TAIL).join("") : text}</span>
      {tail && <span className="middle-tail">{tail}</span>}
    </span>
  );
}

/** How a job is drawn everywhere. */
export function Swatch({ id }: { id: string }) {
  return <span className={`swatch texture ${textureOf(id)}`} style={{ backgroundColor: colourOf(id) }} aria-hidden />;
}

/** A job by name, in its colour. */
export function JobLink({ id, name }: { id: string; name?: string | null }) {
  return (
    <Link to="/jobs/$id" params={{ id }} className="named" title={name ? `${name} (${id})` : id}>
      <Swatch id={id} />
      <Middle text={name ?? id.slice(-8)} />
    </Link>
  );
}

export function NodeLink({ node, name }: { node: string; name?: string | null }) {
  return (
    <Link to="/nodes/$node" params={{ node }} className="named">
      <Middle text={name ?? node} />
    </Link>
  );
}

export function PlanLink({ id }: { id: string }) {
  return (
    <Link to="/plan" search={{ plan: id }} className="named" title={`plan ${id}`}>
      <span className="mono">{id.slice(-8)}</span>
    </Link>
  );
}
