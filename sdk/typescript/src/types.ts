// SPDX-License-Identifier: Apache-2.0
/**
 * What requests take and what methods return. Parameters have the names that the server gives them (docs/openapi.yaml has what they
 * mean; a test compares the lists); results are the client's own.
 */

export type Json = Record<string, unknown>;

export interface TextPart {
  type: "text";
  text: string;
}
export interface ImagePart {
  type: "image_url";
  image_url: string | { url: string; detail?: string };
}
export interface SoundPart {
  type: "input_audio";
  input_audio: { data: string; format: "wav" | "mp3" };
}

export interface WireCall {
  id: string;
  type: "function" | "custom";
  function?: { name: string; arguments: string };
  custom?: { name: string; input: string };
}

export interface Message {
  role: "system" | "developer" | "user" | "assistant" | "tool" | "function";
  content?: string | null | (TextPart | ImagePart | SoundPart)[];
  name?: string;
  reasoning_content?: string;
  tool_calls?: WireCall[];
  tool_call_id?: string;
}

/** A text is a conversation with one message. */
export type Messages = string | readonly Message[];
export type Prompt = string | readonly string[] | readonly number[] | readonly (readonly number[])[];

/** A tool in OpenAI's form. */
export interface ToolDescription {
  type: "function" | "custom";
  function?: { name: string; description?: string; parameters?: Json };
  custom?: { name: string; description?: string; format?: Json };
}

/** Of every method: the model (else the client's), and how the call is ended. */
export interface CallOptions {
  model?: string;
  signal?: AbortSignal;
}

export interface SamplingOptions extends CallOptions {
  temperature?: number;
  dynatemp_range?: number;
  dynatemp_exponent?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  typical_p?: number;
  top_n_sigma?: number;
  xtc_probability?: number;
  xtc_threshold?: number;
  repeat_penalty?: number;
  repeat_last_n?: number;
  frequency_penalty?: number;
  presence_penalty?: number;
  dry_multiplier?: number;
  dry_base?: number;
  dry_allowed_length?: number;
  dry_penalty_last_n?: number;
  dry_sequence_breakers?: string[];
  mirostat?: number;
  mirostat_tau?: number;
  mirostat_eta?: number;
  seed?: number;
  logit_bias?: Record<string, number>;
  samplers?: string[];
  lora?: { id?: number | string; name?: string; scale?: number }[];
  cache_prompt?: boolean;
  speculative?: { enabled?: boolean; max?: number; min?: number; min_p?: number };
  ignore_eos?: boolean;
  priority?: number;
  min_tokens?: number;
  max_tokens?: number;
  n?: number;
  stop?: string | string[];
  grammar?: string;
  regex?: string;
  json_schema?: Json | boolean;
  guided_choice?: string[];
  strict_json?: boolean;
  return_progress?: boolean;
  /** Members for a newer server. */
  extra?: Json;
}

/** What shapes the prompt of a chat. */
export interface TemplateOptions extends CallOptions {
  tools?: readonly (ToolDescription | { describe(): ToolDescription })[];
  tool_choice?: "none" | "auto" | "required" | "any" | Json;
  parallel_tool_calls?: boolean;
  enable_thinking?: boolean;
  reasoning_effort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh";
  chat_template_kwargs?: Json;
  continue_final_message?: boolean;
  add_generation_prompt?: boolean;
  extra?: Json;
}

export interface ChatOptions extends SamplingOptions, TemplateOptions {
  /** A JSON schema that the answer fits; short for a response_format. */
  response_schema?: Json;
  response_format?: {
    type: "text" | "json_object" | "json_schema";
    json_schema?: { name?: string; schema: Json };
    schema?: Json;
  };
  logprobs?: boolean;
  top_logprobs?: number;
  thinking_budget?: number;
  prediction?: Json;
}

export interface CompleteOptions extends SamplingOptions {
  suffix?: string;
  best_of?: number;
  echo?: boolean;
  logprobs?: number;
}

export interface EmbedOptions extends CallOptions {
  dimensions?: number;
  prompt_name?: string;
  input_type?: string;
}

export interface RerankOptions extends CallOptions {
  top_n?: number;
}

export interface TokenizeOptions extends CallOptions {
  add_special?: boolean;
  parse_special?: boolean;
}

export interface DetokenizeOptions extends CallOptions {
  keep_special?: boolean;
}

// --- results ---

export interface Usage {
  promptTokens: number;
  completionTokens: number;
  cachedTokens: number;
  reasoningTokens: number;
}

/** Where the time went; of `draftTokens` that were guessed ahead, `draftAccepted` were right. */
export interface Timings {
  promptMs: number;
  predictedMs: number;
  predictedPerSecond: number;
  draftTokens: number;
  draftAccepted: number;
}

export interface TokenLogprob {
  token: string;
  logprob: number;
  /** Absent where the path does not tell them. */
  bytes?: Uint8Array;
  top: TokenLogprob[];
}

/** A call that the model wrote. Without `complete` the answer was cut off, and the call must not be run. */
export interface ToolCall {
  id: string;
  name: string;
  /** JSON text; of a custom tool: its input. */
  arguments: string;
  type: "function" | "custom";
  complete: boolean;
}

export interface Choice {
  index: number;
  text: string;
  reasoning: string;
  toolCalls: ToolCall[];
  finishReason: "stop" | "length" | "tool_calls" | null;
  logprobs: TokenLogprob[];
}

/** What a stream gives: a piece of an answer. */
export type Event =
  | { kind: "started"; id: string }
  | { kind: "progress"; done: number; total: number; cached: number }
  | { kind: "content" | "reasoning"; choice: number; text: string; logprobs: TokenLogprob[] }
  | { kind: "tool_begin"; choice: number; call: number; id: string; name: string; type: "function" | "custom" }
  | { kind: "tool_arguments"; choice: number; call: number; text: string }
  | { kind: "done"; choice: number; finishReason: "stop" | "length" | "tool_calls" };

export interface Embeddings {
  vectors: Float32Array[];
  model: string;
  promptTokens: number;
  requestId: string | undefined;
}

export interface Ranking {
  /** Best first; `index` is the place in the list that was sent. */
  results: { index: number; score: number }[];
  model: string;
  promptTokens: number;
  requestId: string | undefined;
}

export interface Model {
  id: string;
  status: "loaded" | "loading" | "unloaded";
  created: number;
  parent?: string;
  input_modalities?: string[];
  /** Known after the model was opened once. */
  meta?: Json & {
    family: string;
    quantization: string;
    n_params: number;
    size: number;
    n_ctx: number;
    n_vocab: number;
  };
}

export interface ModelDetails {
  capabilities: string[];
  details: Json;
  model_info: Json;
  template: string;
  parameters: string;
  system?: string;
  messages?: Message[];
  license: string;
  modelfile: string;
  modified_at: string;
}

/** A step of a pull; `completed` of `total` bytes of the file `digest`. */
export interface Progress {
  status: string;
  digest?: string;
  total?: number;
  completed?: number;
}

export interface RunningRequest {
  id: string;
  api: string;
  path: string;
  model?: string;
  state: string;
  key: string | null;
  sequences: number;
  prompt_tokens: number;
  generated_tokens: number;
  age_seconds: number;
}

export interface Health {
  status: "ok" | "loading" | "draining";
  version: string;
  uptime_seconds: number;
  models: { known: number; loaded: number; loading: number };
  requests: { running: number; waiting: number; paused: number };
  memory: { resident_bytes: number; model_bytes: number };
}

export interface Stats extends Json {
  uptime_seconds: number;
  connections: number;
  requests: number;
  running: number;
  waiting: number;
  paused: number;
  prompt_tokens: number;
  tokens_generated: number;
  resident_bytes: number;
  models: (Json & { name: string; state: string; file_bytes: number; active: number })[];
}
