import { useNow } from "../lib/clock";
import { absolute, duration } from "../lib/format";

/** "4m 12s ago", by the server's clock; the moment itself on hover. */
export function Ago({ at, suffix = " ago" }: { at: string; suffix?: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={absolute(at)} className="nowrap">
      {duration((now - Date.parse(at)) / 1_000)}
      {suffix}
    </time>
  );
}

/** "in 12m", or that it is due. */
export function Until({ at }: { at: string }) {
  const now = useNow();
  const left = (Date.parse(at) - now) / 1_000;
  return (
    <time dateTime={at} title={absolute(at)} className="nowrap">
      {left > 0 ? `in ${duration(left)}` : "due"}
    </time>
  );
}
