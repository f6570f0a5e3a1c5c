// SPDX-License-Identifier: Apache-2.0
/** Answers of /v1/chat/completions and /v1/completions: whole ones, and the chunks of a stream, which add up to the same. */
import { ProtocolError } from "./errors.js";
import type { Choice, Event, Message, Timings, TokenLogprob, ToolCall, Usage, WireCall } from "./types.js";

interface WireToken {
  token: string;
  logprob: number;
  bytes: number[];
  top_logprobs?: WireToken[];
}
interface WireLogprobs {
  content?: WireToken[] | null;
  tokens?: string[];
  token_logprobs?: number[];
  top_logprobs?: (Record<string, number> | null)[];
}
interface WireUsage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number };
  completion_tokens_details?: { reasoning_tokens?: number };
}
interface WireTimings {
  prompt_ms?: number;
  predicted_ms: number;
  predicted_per_second: number;
  draft_n?: number;
  draft_n_accepted?: number;
}
interface WireDelta {
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: (Partial<WireCall> & {
    index: number;
    function?: { name?: string; arguments?: string };
    custom?: { name?: string; input?: string };
  })[];
}
export interface WireAnswer {
  id: string;
  model: string;
  choices: {
    index: number;
    message?: { content: string | null; reasoning_content?: string; tool_calls?: WireCall[] };
    delta?: WireDelta;
    text?: string;
    logprobs?: WireLogprobs | null;
    finish_reason: Choice["finishReason"];
  }[];
  usage?: WireUsage | null;
  timings?: WireTimings;
}

const chatToken = (t: WireToken): TokenLogprob => ({
  token: t.token,
  logprob: t.logprob,
  bytes: Uint8Array.from(t.bytes),
  top: (t.top_logprobs ?? []).map(chatToken),
});

/** Chats have a list of tokens, completions have lists side by side. */
function logprobsOf(data: WireLogprobs | null | undefined): TokenLogprob[] {
  if (!data) return [];
  if ("content" in data) return (data.content ?? []).map(chatToken);
  return (data.tokens ?? []).map((token, i) => ({
    token,
    logprob: data.token_logprobs?.[i] ?? Number.NaN,
    top: Object.entries(data.top_logprobs?.[i] ?? {}).map(([t, logprob]) => ({ token: t, logprob, top: [] })),
  }));
}

const callOf = (call: WireCall, complete: boolean): ToolCall =>
  call.type === "custom" && call.custom
    ? { id: call.id, name: call.custom.name, arguments: call.custom.input, type: "custom", complete }
    : {
        id: call.id,
        name: call.function?.name ?? "",
        arguments: call.function?.arguments ?? "",
        type: "function",
        complete,
      };

/** The answer to a chat or a completion; `text`, `reasoning`, `toolCalls`, `finishReason` and `message` are the first choice's. */
export class Answer {
  id = "";
  model = "";
  choices: Choice[] = [];
  usage: Usage = { promptTokens: 0, completionTokens: 0, cachedTokens: 0, reasoningTokens: 0 };
  timings: Timings = { promptMs: 0, predictedMs: 0, predictedPerSecond: 0, draftTokens: 0, draftAccepted: 0 };

  constructor(
    readonly requestId: string | undefined,
    /** Parameters that had no effect (the server's X-Hearth-Ignored). */
    readonly ignored: string[],
  ) {}

  get text(): string {
    return this.choices[0]?.text ?? "";
  }
  get reasoning(): string {
    return this.choices[0]?.reasoning ?? "";
  }
  get toolCalls(): ToolCall[] {
    return this.choices[0]?.toolCalls ?? [];
  }
  get finishReason(): Choice["finishReason"] {
    return this.choices[0]?.finishReason ?? null;
  }

  /** The answer as a message, to be appended to the conversation; without calls that were cut off, which nobody can answer. */
  get message(): Message {
    const said: Message = { role: "assistant", content: this.text };
    if (this.reasoning) said.reasoning_content = this.reasoning;
    const calls = this.toolCalls.filter((c) => c.complete);
    if (calls.length) said.tool_calls = calls.map(wireCall);
    return said;
  }

  /** The text as values, for answers that fit a schema; a SyntaxError if it was cut off. */
  json(): unknown {
    return JSON.parse(this.text);
  }

  /** @internal */
  choice(index: number): Choice {
    if (!Number.isInteger(index) || index < 0 || index > 4095)
      throw new ProtocolError("the number of a choice is out of range");
    for (let i = this.choices.length; i <= index; i++) {
      this.choices.push({ index: i, text: "", reasoning: "", toolCalls: [], finishReason: null, logprobs: [] });
    }
    return this.choices[index] as Choice;
  }

  /** @internal Usage and timings, from wherever they stand. */
  count(data: WireAnswer): void {
    if (data.usage) {
      this.usage = {
        promptTokens: data.usage.prompt_tokens,
        completionTokens: data.usage.completion_tokens,
        cachedTokens: data.usage.prompt_tokens_details?.cached_tokens ?? 0,
        reasoningTokens: data.usage.completion_tokens_details?.reasoning_tokens ?? 0,
      };
    }
    if (data.timings) {
      this.timings = {
        promptMs: data.timings.prompt_ms ?? 0,
        predictedMs: data.timings.predicted_ms,
        predictedPerSecond: data.timings.predicted_per_second,
        draftTokens: data.timings.draft_n ?? 0,
        draftAccepted: data.timings.draft_n_accepted ?? 0,
      };
    }
  }
}

const wireCall = (call: ToolCall): WireCall =>
  call.type === "custom"
    ? { id: call.id, type: "custom", custom: { name: call.name, input: call.arguments } }
    : { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } };

/** Fills an empty answer from a whole one. */
export function readAnswer(into: Answer, data: WireAnswer): Answer {
  into.id = data.id;
  into.model = data.model;
  into.count(data);
  for (const c of data.choices) {
    const choice = into.choice(c.index);
    choice.text = c.message?.content ?? c.text ?? "";
    choice.reasoning = c.message?.reasoning_content ?? "";
    choice.toolCalls = (c.message?.tool_calls ?? []).map((call) => callOf(call, c.finish_reason === "tool_calls"));
    choice.finishReason = c.finish_reason;
    choice.logprobs = logprobsOf(c.logprobs);
  }
  return into;
}

/** Adds a chunk to the answer; gives the events that it stands for. */
export function readChunk(into: Answer, data: WireAnswer): Event[] {
  const events: Event[] = [];
  if (!into.id) {
    into.id = data.id;
    into.model = data.model;
    events.push({ kind: "started", id: data.id });
  }
  into.count(data);
  for (const c of data.choices) {
    const found = deltaEvents(c.index, c.delta ?? { content: c.text ?? "" }, logprobsOf(c.logprobs));
    if (c.finish_reason) found.push({ kind: "done", choice: c.index, finishReason: c.finish_reason });
    for (const event of found) add(into, event);
    events.push(...found);
  }
  return events;
}

function deltaEvents(choice: number, delta: WireDelta, logprobs: TokenLogprob[]): Event[] {
  const events: Event[] = [];
  let rest = logprobs; // they belong to the first text; without any, to an empty one
  const take = () => {
    const taken = rest;
    rest = [];
    return taken;
  };
  if (delta.reasoning_content)
    events.push({ kind: "reasoning", choice, text: delta.reasoning_content, logprobs: take() });
  if (delta.content) events.push({ kind: "content", choice, text: delta.content, logprobs: take() });
  if (rest.length) events.push({ kind: "content", choice, text: "", logprobs: take() });
  for (const call of delta.tool_calls ?? []) {
    const text = call.function?.arguments ?? call.custom?.input;
    if (call.id !== undefined) {
      const name = call.function?.name ?? call.custom?.name ?? "";
      events.push({ kind: "tool_begin", choice, call: call.index, id: call.id, name, type: call.type ?? "function" });
    }
    if (text) events.push({ kind: "tool_arguments", choice, call: call.index, text });
  }
  return events;
}

function add(into: Answer, event: Event): void {
  if (event.kind === "started" || event.kind === "progress") return;
  const choice = into.choice(event.choice);
  switch (event.kind) {
    case "content":
      choice.text += event.text;
      choice.logprobs.push(...event.logprobs);
      break;
    case "reasoning":
      choice.reasoning += event.text;
      choice.logprobs.push(...event.logprobs);
      break;
    case "tool_begin":
      choice.toolCalls.push({ id: event.id, name: event.name, arguments: "", type: event.type, complete: false });
      break;
    case "tool_arguments": {
      const call = choice.toolCalls[event.call];
      if (!call) throw new ProtocolError("arguments came for a call that has not begun");
      call.arguments += event.text;
      break;
    }
    case "done":
      choice.finishReason = event.finishReason;
      if (event.finishReason === "tool_calls") for (const call of choice.toolCalls) call.complete = true;
  }
}
