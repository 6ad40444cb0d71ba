// Server-sent events over fetch, which tells why it was refused; the session's cookie goes with it. Reconnects with the last id it saw.

import { type EventSourceMessage, EventSourceParserStream } from "eventsource-parser/stream";

/** Lost is what was live or never came to be, and is tried again. */
export type Connection = "connecting" | "live" | "lost";

interface Handlers {
  onMessage: (message: EventSourceMessage) => void;
  onState: (state: Connection) => void;
}

const SHORTEST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
/** The server says something every five seconds. Of whom nothing is heard for so long nothing comes any more. */
const SILENCE_MS = 12_000;

/** Subscribes until the returned function is called. */
export function subscribe(query: URLSearchParams, { onMessage, onState }: Handlers): () => void {
  const stop = new AbortController();
  void follow(query, onMessage, onState, stop.signal);
  return () => stop.abort();
}

async function follow(
  query: URLSearchParams,
  onMessage: Handlers["onMessage"],
  onState: Handlers["onState"],
  signal: AbortSignal,
): Promise<void> {
  let lastId: string | undefined;
  let pause = SHORTEST_PAUSE_MS;
  onState("connecting");
  while (!signal.aborted) {
    const silent = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENCE_MS);
    };
    try {
      heard();
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (lastId) headers["Last-Event-ID"] = lastId;
      const answer = await fetch(`/api/v1/stream?${query}`, { headers, signal: AbortSignal.any([signal, silent.signal]) });
      if (!answer.ok || !answer.body) throw new Error(`the stream answered ${answer.status}`);
      onState("live");
      pause = SHORTEST_PAUSE_MS;
      const reader = answer.body
        .pipeThrough(tap(heard))
        .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
        .pipeThrough(new EventSourceParserStream())
        .getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        if (value.id) lastId = value.id;
        onMessage(value);
      }
    } catch {
      if (signal.aborted) return;
    } finally {
      clearTimeout(timer);
    }
    onState("lost");
    await rest(pause);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

/** A while, or until somebody comes back to the page or the network does. */
function rest(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      removeEventListener("online", over);
      document.removeEventListener("visibilitychange", seen);
      resolve();
    };
    const seen = () => !document.hidden && over();
    const timer = setTimeout(over, ms);
    addEventListener("online", over);
    document.addEventListener("visibilitychange", seen);
  });
}

/** Calls `heard` for each piece that passes. */
function tap(heard: () => void): TransformStream<Uint8Array, Uint8Array> {
  return new TransformStream({
    transform(piece, control) {
      heard();
      control.enqueue(piece);
    },
  });
}
