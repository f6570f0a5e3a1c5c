/** Server-sent events out of a byte stream, wherever the network cut it. */
export interface ServerEvent {
  event: string;
  data: string;
}

export class SseParser {
  private rest = "";
  private decoder = new TextDecoder();

  push(bytes: Uint8Array): ServerEvent[] {
    this.rest += this.decoder.decode(bytes, { stream: true });
    const events: ServerEvent[] = [];
    for (let end = this.rest.indexOf("\n\n"); end >= 0; end = this.rest.indexOf("\n\n")) {
      const found = parseEvent(this.rest.slice(0, end));
      this.rest = this.rest.slice(end + 2);
      if (found) events.push(found);
    }
    return events;
  }
}

function parseEvent(text: string): ServerEvent | null {
  let event = "message";
  const data: string[] = [];
  for (const line of text.split("\n")) {
    const value = (name: string) => line.slice(name.length).replace(/^ /, "").replace(/\r$/, "");
    if (line.startsWith("data:")) data.push(value("data:"));
    else if (line.startsWith("event:")) event = value("event:");
  }
  return data.length ? { event, data: data.join("\n") } : null;
}

export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const parser = new SseParser();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
