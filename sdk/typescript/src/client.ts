// SPDX-License-Identifier: Apache-2.0
/**
 * Client: a Hearth server from Node.js or a browser.
 *
 * Which paths, of the several that do the same, and why:
 *   chat, runTools          /v1/chat/completions   n, tools, schemas, thoughts, log-probabilities, usage and timings in one answer
 *   complete                /v1/completions        n, echo, suffix, usage; the native /completion has none of them
 *   embed                   /v1/embeddings         as base64: the floats that the model computed, bit by bit
 *   rerank                  /v1/rerank
 *   tokenize, detokenize    /tokenize, /detokenize
 *   render, count           /apply-template        the only path that takes template variables; its count is that of a chat
 *   models.list, show       /v1/models (status and sizes), /api/show (template, parameters, capabilities)
 *   models.load, unload     /v1/models/load, unload
 *   models.pull, copy, ...  /api/pull (progress on the same connection; leaving stops it), /api/copy, /api/delete
 *   requests, stats, health /v1/requests, /v1/stats, /health
 */
import { Answer, readAnswer, type WireAnswer } from "./answer.js";
import { ProtocolError } from "./errors.js";
import { checkNames, type NAMES } from "./names.js";
import { PullStream, parseJson, Stream } from "./stream.js";
import { type AnyTool, runLoop, type ToolRun } from "./tools.js";
import { type ClientOptions, type Request, Transport } from "./transport.js";
import type {
  CallOptions,
  ChatOptions,
  CompleteOptions,
  DetokenizeOptions,
  Embeddings,
  EmbedOptions,
  Health,
  Json,
  Message,
  Messages,
  Model,
  ModelDetails,
  Prompt,
  Ranking,
  RerankOptions,
  RunningRequest,
  Stats,
  TemplateOptions,
  TokenizeOptions,
  ToolCall,
} from "./types.js";

export const conversation = (messages: Messages): Message[] =>
  typeof messages === "string" ? [{ role: "user", content: messages }] : [...messages];

/** Little-endian 32-bit floats in base64. */
function floatsOf(text: string): Float32Array {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length >> 2 }, (_, i) => view.getFloat32(i * 4, true));
}

/** JSON of the server, read by a function that trusts its form; another form is a ProtocolError. */
function shaped<T>(path: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof TypeError)
      throw new ProtocolError(`${path}: the answer has another form than expected: ${error.message}`);
    throw error;
  }
}

class Caller {
  constructor(protected readonly transport: Transport) {}

  protected async json<T>(
    request: Request,
    read: (body: Json, requestId: string | undefined, ignored: string[]) => T,
  ): Promise<T> {
    const { text, connection } = await this.transport.text(request);
    const body = parseJson(text) as Json;
    return shaped(request.path, () => read(body, connection.requestId, connection.ignored));
  }

  protected post<T>(
    path: string,
    body: Json,
    options: CallOptions,
    read: (body: Json, requestId: string | undefined, ignored: string[]) => T,
  ) {
    return this.json({ method: "POST", path, body, signal: options.signal }, read);
  }

  /** The members of a request: what the caller chose, under names that the method knows. */
  protected body(method: keyof typeof NAMES, options: object, fixed: Json): Json {
    checkNames(method, options);
    const { signal, extra, ...members } = options as CallOptions & { extra?: Json };
    const body: Json = {
      ...(this.transport.model === undefined ? {} : { model: this.transport.model }),
      ...members,
      ...fixed,
    };
    if (Array.isArray(body.tools)) body.tools = body.tools.map((t) => ("describe" in t ? t.describe() : t));
    if (body.response_schema !== undefined) {
      if (body.response_format !== undefined)
        throw new TypeError("response_schema and response_format exclude each other");
      body.response_format = { type: "json_schema", json_schema: { name: "answer", schema: body.response_schema } };
      delete body.response_schema;
    }
    return { ...body, ...extra };
  }
}

/** The models of a server: client.models. */
export class Models extends Caller {
  list(options: { signal?: AbortSignal } = {}): Promise<Model[]> {
    return this.json({ method: "GET", path: "/v1/models", signal: options.signal }, (body) => body.data as Model[]);
  }

  show(name: string, options: { signal?: AbortSignal } = {}): Promise<ModelDetails> {
    return this.post("/api/show", { model: name }, options, (body) => body as unknown as ModelDetails);
  }

  /** keepAlive: seconds, or a duration such as "10m"; negative: forever. */
  async load(name: string, options: { keepAlive?: number | string; signal?: AbortSignal } = {}): Promise<void> {
    await this.post("/v1/models/load", { model: name, keep_alive: options.keepAlive }, options, () => undefined);
  }

  async unload(name: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.post("/v1/models/unload", { model: name }, options, () => undefined);
  }

  /** Downloads a model. Iterate for its progress, or await wait(); leaving it stops the download, which a later pull goes on. */
  async pull(name: string, options: { signal?: AbortSignal } = {}): Promise<PullStream> {
    const request: Request = {
      method: "POST",
      path: "/api/pull",
      body: { model: name, stream: true },
      signal: options.signal,
    };
    return new PullStream(await this.transport.open(request));
  }

  async copy(source: string, destination: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.transport.text({
      method: "POST",
      path: "/api/copy",
      body: { source, destination },
      signal: options.signal,
    });
  }

  async delete(name: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.transport.text({ method: "DELETE", path: "/api/delete", body: { model: name }, signal: options.signal });
  }
}

/** What the server is working on: client.requests. */
export class Requests extends Caller {
  list(options: { signal?: AbortSignal } = {}): Promise<RunningRequest[]> {
    return this.json(
      { method: "GET", path: "/v1/requests", signal: options.signal },
      (body) => body.data as RunningRequest[],
    );
  }

  async cancel(id: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.json(
      { method: "POST", path: `/v1/requests/${encodeURIComponent(id)}/cancel`, signal: options.signal },
      () => undefined,
    );
  }
}

export interface RunToolsOptions extends ChatOptions {
  maxRounds?: number;
  onCall?: (call: ToolCall) => void;
}

/** A server; it may be used by any number of calls at once. */
export class Client extends Caller {
  readonly models: Models;
  readonly requests: Requests;

  constructor(options: ClientOptions = {}) {
    super(new Transport(options));
    this.models = new Models(this.transport);
    this.requests = new Requests(this.transport);
  }

  // --- answers ---

  /** The next message of a conversation. */
  chat(messages: Messages, options: ChatOptions = {}): Promise<Answer> {
    return this.answer(
      "/v1/chat/completions",
      this.body("chat", options, { messages: conversation(messages) }),
      options,
    );
  }

  /** The same, while it is written. */
  chatStream(messages: Messages, options: ChatOptions = {}): Promise<Stream> {
    return this.stream(
      "/v1/chat/completions",
      this.body("chat", options, { messages: conversation(messages) }),
      options,
    );
  }

  /** A text goes on, without a chat template. Several texts: choice k of text i has the index i * n + k. */
  complete(prompt: Prompt, options: CompleteOptions = {}): Promise<Answer> {
    return this.answer("/v1/completions", this.body("complete", options, { prompt }), options);
  }

  /** The same, while it is written. */
  completeStream(prompt: Prompt, options: CompleteOptions = {}): Promise<Stream> {
    return this.stream("/v1/completions", this.body("complete", options, { prompt }), options);
  }

  /** Asks, runs the tools that the model calls, tells it their results, and asks again until it calls no more. */
  runTools(messages: Messages, tools: readonly AnyTool[], options: RunToolsOptions = {}): Promise<ToolRun> {
    const { maxRounds = 8, onCall, ...rest } = options;
    return runLoop(
      (talk) => this.chat(talk, { ...rest, tools }),
      conversation(messages),
      tools,
      maxRounds,
      onCall,
      options.signal,
    );
  }

  // --- texts and vectors ---

  /** Vectors of length 1. input_type: "query" or "document", for models that have prompts for the sides of a search. */
  embed(texts: Prompt, options: EmbedOptions = {}): Promise<Embeddings> {
    const body = this.body("embed", options, { input: texts, encoding_format: "base64" });
    return this.post("/v1/embeddings", body, options, (data, requestId) => {
      const rows = (data.data as { index: number; embedding: string }[]).sort((a, b) => a.index - b.index);
      const promptTokens = (data.usage as { prompt_tokens: number }).prompt_tokens;
      return {
        vectors: rows.map((row) => floatsOf(row.embedding)),
        model: data.model as string,
        promptTokens,
        requestId,
      };
    });
  }

  /** Documents by how well they answer the query. */
  rerank(query: string, documents: readonly string[], options: RerankOptions = {}): Promise<Ranking> {
    return this.post("/v1/rerank", this.body("rerank", options, { query, documents }), options, (data, requestId) => ({
      results: (data.results as { index: number; relevance_score: number }[]).map((r) => ({
        index: r.index,
        score: r.relevance_score,
      })),
      model: data.model as string,
      promptTokens: (data.usage as { prompt_tokens: number }).prompt_tokens,
      requestId,
    }));
  }

  tokenize(text: string, options: TokenizeOptions = {}): Promise<number[]> {
    return this.post(
      "/tokenize",
      this.body("tokenize", options, { content: text }),
      options,
      (data) => data.tokens as number[],
    );
  }

  /** As tokenize, with the text of each token. */
  pieces(text: string, options: TokenizeOptions = {}): Promise<{ id: number; piece: string }[]> {
    const body = this.body("tokenize", options, { content: text, with_pieces: true });
    return this.post("/tokenize", body, options, (data) => data.tokens as { id: number; piece: string }[]);
  }

  detokenize(tokens: readonly number[], options: DetokenizeOptions = {}): Promise<string> {
    return this.post(
      "/detokenize",
      this.body("detokenize", options, { tokens }),
      options,
      (data) => data.content as string,
    );
  }

  /** The prompt of a chat as the model sees it. */
  render(messages: Messages, options: TemplateOptions = {}): Promise<string> {
    return this.post(
      "/apply-template",
      this.body("render", options, { messages: conversation(messages) }),
      options,
      (d) => d.prompt as string,
    );
  }

  /** How many tokens that prompt has, pictures included. */
  count(messages: Messages, options: TemplateOptions = {}): Promise<number> {
    const body = this.body("render", options, { messages: conversation(messages) });
    return this.post("/apply-template", body, options, (data) => data.prompt_tokens as number);
  }

  // --- the server ---

  /** Also of a server that is not ready. */
  health(options: { signal?: AbortSignal } = {}): Promise<Health> {
    return this.json(
      { method: "GET", path: "/health", signal: options.signal, good: [200, 503] },
      (body) => body as unknown as Health,
    );
  }

  stats(options: { signal?: AbortSignal } = {}): Promise<Stats> {
    return this.json({ method: "GET", path: "/v1/stats", signal: options.signal }, (body) => body as unknown as Stats);
  }

  // --- inside ---

  private answer(path: string, body: Json, options: CallOptions): Promise<Answer> {
    return this.post(path, body, options, (data, requestId, ignored) =>
      readAnswer(new Answer(requestId, ignored), data as unknown as WireAnswer),
    );
  }

  private async stream(path: string, body: Json, options: CallOptions): Promise<Stream> {
    const whole = { ...body, stream: true, stream_options: { include_usage: true } };
    return new Stream(await this.transport.open({ method: "POST", path, body: whole, signal: options.signal }));
  }
}
