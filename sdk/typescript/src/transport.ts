// SPDX-License-Identifier: Apache-2.0
/** Sending requests: keys, time-outs, the few retries that are safe, and failures as errors of our own. */
import {
  Aborted,
  ConnectError,
  ConnectionLost,
  HearthError,
  type StatusError,
  statusError,
  TimedOut,
  toldBy,
} from "./errors.js";
import type { Source } from "./stream.js";

/** As much of fetch as is used: a function of this form is a way to reach the server. */
export type Fetch = (
  url: string,
  init: { method: string; headers: Record<string, string>; body?: string; signal: AbortSignal },
) => Promise<Response>;

export interface ClientOptions {
  /** http:// or https://; else HEARTH_HOST, else http://127.0.0.1:11434. With hearth-client/node also unix:/path/of/the/socket. */
  url?: string;
  /** Else HEARTH_API_KEY. */
  apiKey?: string;
  /** For calls that name none. */
  model?: string;
  /** Milliseconds without a byte from the server until TimedOut; 0: as long as it takes. */
  timeout?: number;
  /** How often a request is sent again that certainly did nothing: nobody was reached, or the whole answer was 503 with Retry-After. */
  retries?: number;
  /** The longest Retry-After that is waited for, in milliseconds. */
  maxWait?: number;
  fetch?: Fetch;
}

const DEFAULT_URL = "http://127.0.0.1:11434";
const environment = () => (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env ?? {};

/**
 * What HEARTH_HOST may be ("name", "name:port", a URL) as a URL without a slash at its end. The port of http is 11434 unless it is said,
 * as for the program's own commands.
 */
function urlOf(given: string): string {
  const bare6 = !/:\/\/|\[/.test(given) && given.split(":").length > 2; // an IPv6 address without brackets
  const text = given.includes("://") ? given : bare6 ? `http://[${given}]` : `http://${given}`;
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError(`'${given}' is not the address of a server`);
  }
  if ((url.protocol !== "http:" && url.protocol !== "https:") || url.username || url.search || url.hash) {
    throw new TypeError(`'${given}' is not the address of a server`);
  }
  if (url.protocol === "http:" && !/:\d+$/.test(text.split("/")[2] ?? "")) url.port = "11434";
  return url.href.replace(/\/+$/, "");
}

/** Codes of Node.js for connections that were never made; browsers do not tell, so there nothing is sent again. */
const UNREACHED = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOENT",
  "EACCES",
  "UND_ERR_CONNECT_TIMEOUT",
]);

function codeOf(error: unknown): string | undefined {
  const { code, cause, errors } = error as { code?: string; cause?: unknown; errors?: unknown[] };
  if (typeof code === "string") return code;
  if (errors?.length) return codeOf(errors[0]);
  return cause ? codeOf(cause) : undefined;
}

/** A number that JSON has no name for would become null, which the server takes for absent. */
function encode(body: unknown): string {
  return JSON.stringify(body, (name, value) => {
    if (typeof value === "number" && !Number.isFinite(value))
      throw new TypeError(`${name}: ${value} is not a number of JSON`);
    return value;
  });
}

/** A response whose head is here: its bytes come through read(). */
class Connection implements Source {
  private reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly control = new AbortController();
  private why: HearthError | undefined;
  private readonly onAbort = () => this.end(new Aborted("the request was aborted"));
  response!: Response;

  constructor(
    private readonly where: string,
    private readonly timeout: number,
    private readonly outer: AbortSignal | undefined,
  ) {
    outer?.addEventListener("abort", this.onAbort);
    if (outer?.aborted) this.onAbort();
  }

  get requestId(): string | undefined {
    return this.response?.headers.get("x-request-id") ?? undefined;
  }

  get ignored(): string[] {
    return (this.response.headers.get("x-hearth-ignored") ?? "")
      .split(",")
      .map((s) => s.trim())
      .filter(Boolean);
  }

  get retryAfter(): number | undefined {
    const text = this.response.headers.get("retry-after");
    return text !== null && /^\d+$/.test(text.trim()) ? Number(text) : undefined;
  }

  private arm(): void {
    clearTimeout(this.timer);
    if (this.timeout > 0)
      this.timer = setTimeout(() => this.end(new TimedOut(`${this.where} did not answer in time`)), this.timeout);
  }

  private end(why: HearthError): void {
    this.why ??= why;
    clearTimeout(this.timer);
    this.outer?.removeEventListener("abort", this.onAbort);
    this.control.abort();
  }

  async open(
    send: Fetch,
    url: string,
    method: string,
    headers: Record<string, string>,
    body: string | undefined,
  ): Promise<void> {
    this.arm();
    try {
      const init = { method, headers, signal: this.control.signal };
      this.response = await send(url, body === undefined ? init : { ...init, body });
      clearTimeout(this.timer); // only read() waits from here on: a caller who does something else is not silence of the server
    } catch (error) {
      clearTimeout(this.timer);
      this.outer?.removeEventListener("abort", this.onAbort);
      if (this.why) throw this.why;
      const said =
        error instanceof Error
          ? error.cause instanceof Error
            ? error.cause.message || codeOf(error)
            : error.message
          : error;
      if (UNREACHED.has(codeOf(error) ?? ""))
        throw new ConnectError(`no server answers at ${this.where}: ${said}`, { cause: error });
      throw new ConnectionLost(`no answer from ${this.where}: ${said}`, { cause: error });
    }
  }

  async read(): Promise<Uint8Array | undefined> {
    if (this.why) throw this.why;
    if (!this.response.body) return undefined;
    this.reader ??= this.response.body.getReader();
    this.arm();
    try {
      const { done, value } = await this.reader.read();
      clearTimeout(this.timer);
      if (done) this.outer?.removeEventListener("abort", this.onAbort);
      return done ? undefined : value;
    } catch (error) {
      const why = this.why ?? new ConnectionLost(`the connection to ${this.where} was lost`, { cause: error });
      this.end(why);
      throw why;
    }
  }

  async text(): Promise<string> {
    const decoder = new TextDecoder();
    let text = "";
    for (let data = await this.read(); data; data = await this.read()) text += decoder.decode(data, { stream: true });
    return text + decoder.decode();
  }

  close(): void {
    this.end(new Aborted("the stream was closed"));
    this.reader?.cancel().catch(() => undefined);
  }
}

async function failure(connection: Connection): Promise<StatusError> {
  const text = await connection.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = { error: text.slice(0, 200).trim() || undefined };
  }
  return statusError(connection.response.status, toldBy(body), connection.requestId, connection.retryAfter);
}

/** Milliseconds until a request that certainly did nothing may be sent again; negative: never. */
function waitBefore(error: unknown, attempt: number, longest: number): number {
  if (error instanceof ConnectError) return Math.min(100 * 2 ** attempt, longest);
  const { status, retryAfter } = error as StatusError;
  if (status !== 503 || retryAfter === undefined) return -1;
  return retryAfter * 1000 <= longest ? retryAfter * 1000 : -1;
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new Aborted("the request was aborted"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

export interface Request {
  method: "GET" | "POST" | "DELETE";
  path: string;
  body?: unknown;
  signal?: AbortSignal | undefined;
  /** Statuses that are answers; else 200. */
  good?: number[];
}

export class Transport {
  readonly model: string | undefined;
  private readonly url: string;
  private readonly key: string | undefined;
  private readonly timeout: number;
  private readonly retries: number;
  private readonly maxWait: number;
  private readonly send: Fetch;

  constructor(options: ClientOptions) {
    this.url =
      options.fetch && options.url?.startsWith("unix:")
        ? options.url
        : urlOf(options.url ?? (environment().HEARTH_HOST || DEFAULT_URL));
    this.key = (options.apiKey ?? environment().HEARTH_API_KEY) || undefined;
    if (this.key !== undefined && !/^[!-~]+$/.test(this.key))
      throw new TypeError("the key contains a character that a header cannot carry");
    this.model = options.model;
    this.timeout = options.timeout ?? 600_000;
    this.retries = options.retries ?? 2;
    this.maxWait = options.maxWait ?? 10_000;
    this.send = options.fetch ?? ((url, init) => fetch(url, init));
  }

  /** Sends a request until its head is here and good. */
  async open(request: Request): Promise<Connection> {
    const body = request.body === undefined ? undefined : encode(request.body);
    const headers: Record<string, string> = {};
    if (body !== undefined) headers["content-type"] = "application/json";
    if (this.key) headers.authorization = `Bearer ${this.key}`;
    const base = this.url.startsWith("unix:") ? "http://localhost" : this.url;
    for (let attempt = 0; ; attempt++) {
      const connection = new Connection(this.url, this.timeout, request.signal);
      try {
        await connection.open(this.send, base + request.path, request.method, headers, body);
        if ((request.good ?? [200]).includes(connection.response.status)) return connection;
        throw await failure(connection);
      } catch (error) {
        const wait = waitBefore(error, attempt, this.maxWait);
        if (wait < 0 || attempt >= this.retries) throw error;
        await sleep(wait, request.signal);
      }
    }
  }

  async text(request: Request): Promise<{ text: string; connection: Connection }> {
    const connection = await this.open(request);
    try {
      return { text: await connection.text(), connection };
    } catch (error) {
      if (error instanceof HearthError) error.requestId = connection.requestId;
      throw error;
    }
  }
}
