// SPDX-License-Identifier: Apache-2.0
/** Streams: bytes of a response as events, and the classes that callers iterate over. */
import { Answer, readChunk, type WireAnswer } from "./answer.js";
import { Aborted, ConnectionLost, HearthError, ProtocolError, StreamFailed, toldBy } from "./errors.js";
import type { Event, Progress } from "./types.js";

const MAX_LINE = 64 << 20; // an event is far smaller

/** Whole lines out of pieces of bytes. */
export class Lines {
  private rest = "";
  private readonly decoder = new TextDecoder();

  feed(data: Uint8Array): string[] {
    const lines = (this.rest + this.decoder.decode(data, { stream: true })).split("\n");
    this.rest = lines.pop() ?? "";
    if (this.rest.length > MAX_LINE) throw new ProtocolError("a line of the stream does not end");
    return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
  }
}

/** Server-sent events out of pieces of bytes. */
export class ServerEvents {
  private readonly lines = new Lines();
  private name = "";
  private data: string[] = [];

  feed(bytes: Uint8Array): { name: string; data: string }[] {
    const found: { name: string; data: string }[] = [];
    for (const line of this.lines.feed(bytes)) {
      if (line === "") {
        if (this.data.length) found.push({ name: this.name, data: this.data.join("\n") });
        this.name = "";
        this.data = [];
      } else if (line.startsWith("data:")) {
        this.data.push(line.slice(line[5] === " " ? 6 : 5));
      } else if (line.startsWith("event:")) {
        this.name = line.slice(6).trim();
      }
    }
    return found;
  }
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ProtocolError("the answer is not JSON");
  }
}

function refuse(body: unknown, requestId: string | undefined): void {
  if (typeof body === "object" && body !== null && "error" in body) throw new StreamFailed(toldBy(body), requestId);
}

/** What a response hands to a stream: its bytes, and the end of the connection. */
export interface Source {
  requestId: string | undefined;
  ignored: string[];
  /** Undefined at the end; rejects with a HearthError. */
  read(): Promise<Uint8Array | undefined>;
  close(): void;
}

/** Leaving a `for await` loop, close() and `await using` end the request on the server. */
abstract class BaseStream<T> implements AsyncIterable<T> {
  private ready: T[] = [];
  private closed = false;
  protected over = false;

  constructor(protected readonly source: Source) {}

  /** The server's name for this request, as in requests.list(). */
  get requestId(): string | undefined {
    return this.source.requestId;
  }

  protected abstract decode(data: Uint8Array): T[];

  private async next(): Promise<IteratorResult<T>> {
    while (this.ready.length === 0) {
      if (this.over || this.closed) {
        this.close();
        return { done: true, value: undefined };
      }
      try {
        const data = await this.source.read();
        if (data === undefined) throw new ConnectionLost("the stream ended before its last event");
        this.ready = this.decode(data);
      } catch (error) {
        if (this.closed && error instanceof Aborted) continue; // by close(), from elsewhere
        this.close();
        if (error instanceof HearthError) error.requestId = this.requestId;
        else if (error instanceof TypeError)
          throw new ProtocolError(`a piece of the answer has another form than expected: ${error.message}`);
        throw error;
      }
    }
    return { done: false, value: this.ready.shift() as T };
  }

  [Symbol.asyncIterator](): AsyncIterator<T> {
    return {
      next: () => this.next(),
      return: async () => {
        this.close();
        return { done: true, value: undefined };
      },
    };
  }

  /** Ends the request. */
  close(): void {
    if (!this.closed) {
      this.closed = true;
      this.source.close();
    }
  }

  async [(Symbol as { asyncDispose?: symbol }).asyncDispose ?? Symbol("asyncDispose")](): Promise<void> {
    this.close();
  }
}

/** The events of an answer while it is written. */
export class Stream extends BaseStream<Event> {
  /** What came until now. */
  readonly soFar: Answer;
  private readonly events = new ServerEvents();

  constructor(source: Source) {
    super(source);
    this.soFar = new Answer(source.requestId, source.ignored);
  }

  protected override decode(data: Uint8Array): Event[] {
    const found: Event[] = [];
    for (const event of this.events.feed(data)) {
      if (this.over) break;
      if (event.data === "[DONE]") {
        this.over = true;
        continue;
      }
      const body = parseJson(event.data);
      refuse(body, this.requestId);
      if (event.name === "prefill_progress") {
        const { processed, total, cached } = body as Record<string, number>;
        found.push({ kind: "progress", done: processed ?? 0, total: total ?? 0, cached: cached ?? 0 });
      } else {
        found.push(...readChunk(this.soFar, body as WireAnswer));
      }
    }
    return found;
  }

  /** Only the pieces of the first answer's text. */
  async *texts(): AsyncGenerator<string, void, undefined> {
    for await (const event of this) if (event.kind === "content" && event.choice === 0 && event.text) yield event.text;
  }

  /** Reads the rest and gives the whole answer. */
  async answer(): Promise<Answer> {
    for await (const _ of this);
    return this.soFar;
  }
}

/** The steps of a pull. */
export class PullStream extends BaseStream<Progress> {
  private readonly lines = new Lines();

  protected override decode(data: Uint8Array): Progress[] {
    const found: Progress[] = [];
    for (const line of this.lines.feed(data)) {
      if (!line) continue;
      const body = parseJson(line);
      refuse(body, this.requestId);
      found.push(body as Progress);
      this.over = (body as Progress).status === "success";
    }
    return found;
  }

  /** Until the model is here. */
  async wait(): Promise<void> {
    for await (const _ of this);
  }
}
