// When a job is predicted to start: the median, and the band that four of five starts should fall into. A prediction is never red, only hollow.

import { useNow } from "../../lib/clock";
import { absolute, duration } from "../../lib/format";

interface Foretold {
  p10?: string | null | undefined;
  p50?: string | null | undefined;
  p90?: string | null | undefined;
}

const left = (at: string, now: number) => (Date.parse(at) - now) / 1_000;

/** For how long it should have run by now, by nine of ten chances; else `undefined`. */
function late({ p90 }: Foretold, now: number): number | undefined {
  const seconds = p90 ? -left(p90, now) : 0;
  return seconds > 0 ? seconds : undefined;
}

/** "now" where nothing is left. */
const span = (seconds: number) => (seconds > 0 ? duration(seconds) : "now");

/** "in 12m", "due", "late by 4m", "after 2h 00m", or a dash where nobody can tell. */
export function Median({ of, now }: { of: Foretold; now: number }) {
  const { p10, p50, p90 } = of;
  const overdue = late(of, now);
  if (p90 && overdue !== undefined) {
    return (
      <time dateTime={p90} title={`nine of ten should have started by ${absolute(p90)}: the prediction did not hold`}>
        late by {duration(overdue)}
      </time>
    );
  }
  if (p50) {
    const seconds = left(p50, now);
    return (
      <time dateTime={p50} title={`as likely before as after ${absolute(p50)}`}>
        {seconds > 0 ? `in ${duration(seconds)}` : "due"}
      </time>
    );
  }
  if (!p10) return <span title="nothing tells when what runs will end">–</span>;
  return (
    <time dateTime={p10} title={`not before ${absolute(p10)}, and more likely much later`}>
      after {duration(Math.max(0, left(p10, now)))}
    </time>
  );
}

/** "4m 00s–1h 10m", and the same drawn. */
export function Band({ of, now }: { of: Foretold; now: number }) {
  const { p10, p50, p90 } = of;
  if (!p10 || late(of, now) !== undefined) return null;
  const [from, to] = [Math.max(0, left(p10, now)), p90 ? Math.max(0, left(p90, now)) : undefined];
  const title = p90 ? `four of five starts fall between ${absolute(p10)} and ${absolute(p90)}` : `nine of ten starts fall after ${absolute(p10)}; no end was worked out`;
  return (
    <span className="queue-band" title={title}>
      <Drawn from={from} median={p50 ? left(p50, now) : undefined} to={to} />
      <span className="muted">
        {span(from)}–{to === undefined ? "…" : span(to)}
      </span>
    </span>
  );
}

const [WIDTH, HEIGHT] = [72, 12];
/** Where the band's scale ends. It is logarithmic, and the same in all rows: minutes are told apart, and so are days. */
const LONGEST_SECONDS = 2 * 86_400;

/** Hollow and dashed, as predictions are; open where the end is not known. */
function Drawn({ from, median, to }: { from: number; median: number | undefined; to: number | undefined }) {
  const x = (seconds: number) => 1 + (WIDTH - 2) * Math.min(1, Math.log1p(Math.max(0, seconds) / 60) / Math.log1p(LONGEST_SECONDS / 60));
  const [first, last] = [x(from), to === undefined ? WIDTH : Math.max(x(to), x(from) + 3)];
  const [top, bottom] = [2, HEIGHT - 2];
  const edge = `M${last} ${top}H${first}V${bottom}H${last}${to === undefined ? "" : "Z"}`;
  return (
    <svg width={WIDTH} height={HEIGHT} aria-hidden>
      <path d={edge} fill="none" stroke="var(--edge)" strokeDasharray="3 2" />
      {median !== undefined && <path d={`M${x(median)} 0V${HEIGHT}`} stroke="var(--accent)" strokeWidth="2" />}
    </svg>
  );
}

/** The same as a sentence. */
export function StartSentence({ of, why }: { of: Foretold; why?: string | null | undefined }) {
  const now = useNow();
  const { p10, p50, p90 } = of;
  if (!p10) return <p>There is no telling when it starts{why ? `: ${why}` : "."}</p>;
  const overdue = late(of, now);
  if (overdue !== undefined) {
    return <p>It should have started {duration(overdue)} ago, by nine of ten chances: the prediction did not hold, and a new one comes with the next look ahead.</p>;
  }
  const within = (at: string) => (
    <time dateTime={at} title={absolute(at)} className="nowrap">
      {span(left(at, now))}
    </time>
  );
  if (!p50) return <p>Starts in {within(p10)} at the earliest, and more likely much later.</p>;
  return (
    <p>
      Starts in {within(p10)} {p90 ? <>to {within(p90)}</> : "or later"}, as likely before as after <b>{within(p50)}</b>.{" "}
      <span className="muted">{p90 ? "Four of five starts should fall within the band." : "Nine of ten starts should come after the first of these."}</span>
    </p>
  );
}
