import { serverNow } from "../lib/clock";
import { absolute, clock } from "../lib/format";

/** The time of day, with the day where it is not today; all of it on hover. */
export function When({ at }: { at: string }) {
  const date = new Date(at);
  const today = date.toDateString() === new Date(serverNow()).toDateString();
  return (
    <time dateTime={at} title={absolute(at)} className="nowrap">
      {!today && `${date.toLocaleDateString([], { day: "numeric", month: "short" })} `}
      {clock(at)}
    </time>
  );
}
