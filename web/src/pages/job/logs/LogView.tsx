// Lines as they came, of which only those in sight exist. At the end it goes on with the output; who scrolls up stays where he is and is told how
// much has come.

import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type MouseEvent, useEffect, useMemo, useRef, useState } from "react";
import { copyText } from "../../../lib/clipboard";
import { clock, count } from "../../../lib/format";
import { Empty } from "../../../parts/Panel";
import type { Feed } from "./feed";
import { type Entry, Fold, missing, spans, toneOf } from "./lines";
import { addressOf, indexOf, placeOf } from "./permalink";

interface Props {
  feed: Feed;
  version: number;
  ranks: readonly number[];
  folds: boolean;
  wraps: boolean;
  timed: boolean;
  follows: boolean;
  shows: ((text: string) => boolean) | undefined;
  onUnfilter: () => void;
  /** The address of a line. */
  chosen: string | undefined;
  onChoose: (address: string | undefined) => void;
}

const ROW = 18;
/** So near its end a view counts as at its end. */
const NEAR = 24;

export function LogView({ feed, version, ranks, folds, wraps, timed, follows, shows, onUnfilter, chosen, onChoose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [atEnd, setAtEnd] = useState(chosen === undefined);
  // Begun anew with the feed, and where the oldest lines have gone.
  const fold = useMemo(() => new Fold(folds, shows), [feed, feed.dropped, folds, shows]);
  // It looks at what it does not know yet, and no more.
  fold.take(feed.lines);
  const { entries, hidden, failing } = fold;

  const virtual = useVirtualizer({
    count: entries.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 20,
  });
  // Heights that were measured hold for the lines and the width that they were measured with.
  useEffect(() => virtual.measure(), [virtual, wraps, fold]);
  const end = () => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
    setAtEnd(true);
  };
  const [left, setLeft] = useState(0);
  useEffect(() => {
    if (atEnd) end();
    // Where it ends is known once the rows are laid out.
  }, [entries.length, atEnd, version]);

  const show = (index: number) => {
    setAtEnd(false);
    setLeft(entries.length);
    virtual.scrollToIndex(index, { align: "center" });
  };
  const jump = () => {
    const first = entries.findIndex((entry) => toneOf(entry.line.text) === "bad");
    if (first >= 0) show(first);
  };

  const place = useMemo(() => placeOf(chosen), [chosen]);
  const at = useMemo(() => (place ? indexOf(entries, place) : -1), [place, entries, entries.length]);
  // Once, when it is found: who scrolls on is not brought back.
  const shown = useRef<string>(undefined);
  useEffect(() => {
    if (at < 0 || shown.current === chosen) return;
    shown.current = chosen;
    show(at);
  }, [at, chosen]);
  const choose = (index: number) => {
    const entry = entries[index];
    const address = entry && addressOf(entry);
    if (!address) return;
    setAtEnd(false);
    setLeft(entries.length);
    shown.current = address;
    onChoose(address === chosen ? undefined : address);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { j: 1, k: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const from = at >= 0 ? at : (virtual.range?.endIndex ?? 0);
    const next = Math.max(0, Math.min(entries.length - 1, from + step));
    if (next === at) return;
    choose(next);
    virtual.scrollToIndex(next, { align: "auto" });
  };
  const onClick = (event: MouseEvent) => {
    const row = (event.target as HTMLElement).closest<HTMLElement>(".job-log-at, .job-log-rank")?.closest<HTMLElement>("[data-index]");
    if (row) choose(Number(row.dataset.index));
  };
  const come = atEnd ? 0 : Math.max(0, entries.length - left);

  return (
    <div className="job-log-box">
      <div
        ref={box}
        className={`job-log ${wraps ? "wraps" : ""}`}
        role="log"
        aria-live="off"
        aria-label="Output"
        tabIndex={0}
        data-testid="log"
        onKeyDown={onKey}
        onClick={onClick}
        onScroll={(event) => {
          const of = event.currentTarget;
          const near = of.scrollHeight - of.scrollTop - of.clientHeight <= NEAR;
          if (near === atEnd) return;
          setAtEnd(near);
          if (!near) setLeft(entries.length);
        }}
      >
        {entries.length === 0 ? (
          <Nothing feed={feed} hidden={hidden} follows={follows} onUnfilter={onUnfilter} />
        ) : (
          <div className="job-log-lines" style={{ height: virtual.getTotalSize() }}>
            {virtual.getVirtualItems().map((item) => (
              <div
                key={item.key}
                ref={wraps ? virtual.measureElement : undefined}
                data-index={item.index}
                className={`job-log-row ${item.index === at ? "chosen" : ""}`}
                aria-current={item.index === at || undefined}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <Row entry={entries[item.index]!} ranks={ranks} timed={timed} />
              </div>
            ))}
          </div>
        )}
      </div>
      <div className="row job-log-foot">
        <span className="muted">
          {count(entries.length)} {folds ? "entries" : "lines"}
          {hidden > 0 && `; the filter hides ${count(hidden)}`}
          {feed.dropped > 0 && `; the oldest ${count(feed.dropped)} lines are not kept: download the log`}
          {feed.state === "reading" ? (follows ? "; following" : "; reading …") : ""}
        </span>
        {hidden > 0 && (
          <button className="link" onClick={onUnfilter}>
            show all
          </button>
        )}
        <span className="space" />
        {chosen !== undefined && (
          <Chosen found={at >= 0} searching={feed.state === "reading" && feed.lines.length === 0} onShow={() => show(at)} onClose={() => onChoose(undefined)} />
        )}
        {failing && (
          <button className="button" onClick={jump}>
            First error
          </button>
        )}
        {!atEnd && (
          <button className="button" onClick={end} data-testid="log-end">
            {come > 0 ? `${count(come)} new, to the end` : "To the end"}
          </button>
        )}
      </div>
    </div>
  );
}

interface ChosenProps {
  found: boolean;
  searching: boolean;
  onShow: () => void;
  onClose: () => void;
}

/** The line that the address names: where it is, and its address for others. */
function Chosen({ found, searching, onShow, onClose }: ChosenProps) {
  const [copied, setCopied] = useState(false);
  const copy = async () => setCopied(await copyText(location.href));
  if (!found) {
    return (
      <span className="muted" role="status" data-testid="log-line-missing">
        {searching ? "Looking for the line …" : "The line of this address is not among these: other ranks or another filter may have it."}
      </span>
    );
  }
  return (
    <>
      <button className="button" onClick={onShow} data-testid="log-line">
        The line
      </button>
      <button className="button" onClick={() => void copy()}>
        {copied ? "Copied" : "Copy its link"}
      </button>
      <button className="button" onClick={onClose} aria-label="choose no line">
        ✕
      </button>
    </>
  );
}

function Row({ entry, ranks, timed }: { entry: Entry; ranks: readonly number[]; timed: boolean }) {
  const { line } = entry;
  const absent = ranks.length > 1 ? missing(entry, ranks) : [];
  const several = ranks.length > 1;
  return (
    <>
      {timed && (
        <span className="job-log-at" title={line.at === null ? undefined : "press for a link to this line"}>
          {line.at === null ? "" : clock(line.at)}
        </span>
      )}
      {several && (
        <span className="job-log-rank" style={{ borderColor: line.rank === null ? "transparent" : `var(--c${line.rank % 8})` }}>
          {line.rank === null ? "" : entry.ranks.length > 1 ? `×${entry.ranks.length}` : line.rank}
        </span>
      )}
      <bdi dir="ltr" className={line.rank === null ? "muted" : toneOf(line.text)}>
        {line.text}
      </bdi>
      {absent.length > 0 && <span className="job-log-missing">▲ not said by {spans(absent)}</span>}
    </>
  );
}

function Nothing({ feed, hidden, follows, onUnfilter }: { feed: Feed; hidden: number; follows: boolean; onUnfilter: () => void }) {
  if (hidden > 0) {
    return (
      <Empty>
        The filter hides all {count(hidden)}.{" "}
        <button className="link" onClick={onUnfilter}>
          Show all
        </button>
      </Empty>
    );
  }
  if (feed.state === "failed") return <Empty>Nothing could be read.</Empty>;
  if (feed.state === "over") return <Empty>These ranks wrote nothing. Others may have: choose all ranks, or another attempt.</Empty>;
  return <Empty>{follows ? "Nothing was written yet; what comes is shown at once." : "Reading …"}</Empty>;
}
