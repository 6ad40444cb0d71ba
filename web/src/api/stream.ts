// Server-sent events over fetch, which tells why it was refused. The session's cookie goes with it. Reconnects with the last id it saw.

export type Connection = "connecting" | "live" | "lost";

interface Handlers {
  onMessage: (topic: string, data: string) => void;
  onState: (state: Connection) => void;
}

const LONGEST_PAUSE_MS = 10_000;

/** Subscribes until the returned function is called. */
export function subscribe(topics: string[], { onMessage, onState }: Handlers): () => void {
  const stop = new AbortController();
  void follow(topics, onMessage, onState, stop.signal);
  return () => stop.abort();
}

async function follow(
  topics: string[],
  onMessage: Handlers["onMessage"],
  onState: Handlers["onState"],
  signal: AbortSignal,
): Promise<void> {
  let lastId: string | undefined;
  let pause = 500;
  while (!signal.aborted) {
    try {
      onState("connecting");
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (lastId) headers["Last-Event-ID"] = lastId;
      const answer = await fetch(`/api/v1/stream?patch=true&topics=${topics.join(",")}`, { headers, signal });
      if (!answer.ok || !answer.body) throw new Error(`stream answered ${answer.status}`);
      onState("live");
      pause = 500;
      for await (const message of messages(answer.body)) {
        if (message.id) lastId = message.id;
        if (message.data) onMessage(message.event, message.data);
      }
    } catch {
      if (signal.aborted) return;
    }
    onState("lost");
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

interface Message {
  id?: string;
  event: string;
  data: string;
}

/** Parses the event-stream format (WHATWG HTML §9.2.6). */
async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += decoder.decode(value, { stream: true });
    const parts = buffer.split(/\r?\n\r?\n/);
    buffer = parts.pop() ?? "";
    for (const part of parts) yield parse(part);
  }
}

function parse(part: string): Message {
  const message: Message = { event: "message", data: "" };
  const data: string[] = [];
  for (const line of part.split(/\r?\n/)) {
    const [, field, text] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (field === "id") message.id = text;
    if (field === "event") message.event = text ?? "message";
    if (field === "data") data.push(text ?? "");
  }
  message.data = data.join("\n");
  return message;
}
