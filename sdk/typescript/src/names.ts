// SPDX-License-Identifier: Apache-2.0
/**
 * The parameters of each method at run time, so that a misspelt one is an error in JavaScript too and is never sent. The compiler
 * holds the lists to the interfaces; a test compares them with the API description.
 */
import type {
  ChatOptions,
  CompleteOptions,
  DetokenizeOptions,
  EmbedOptions,
  RerankOptions,
  SamplingOptions,
  TemplateOptions,
  TokenizeOptions,
} from "./types.js";

type All<T> = Record<keyof T, true>;

const call = { model: true, signal: true } as const;

const sampling: All<SamplingOptions> = {
  ...call,
  temperature: true,
  dynatemp_range: true,
  dynatemp_exponent: true,
  top_k: true,
  top_p: true,
  min_p: true,
  typical_p: true,
  top_n_sigma: true,
  xtc_probability: true,
  xtc_threshold: true,
  repeat_penalty: true,
  repeat_last_n: true,
  frequency_penalty: true,
  presence_penalty: true,
  dry_multiplier: true,
  dry_base: true,
  dry_allowed_length: true,
  dry_penalty_last_n: true,
  dry_sequence_breakers: true,
  mirostat: true,
  mirostat_tau: true,
  mirostat_eta: true,
  seed: true,
  logit_bias: true,
  samplers: true,
  lora: true,
  cache_prompt: true,
  speculative: true,
  ignore_eos: true,
  priority: true,
  min_tokens: true,
  max_tokens: true,
  n: true,
  stop: true,
  grammar: true,
  regex: true,
  json_schema: true,
  guided_choice: true,
  strict_json: true,
  return_progress: true,
  extra: true,
};

const template: All<TemplateOptions> = {
  ...call,
  tools: true,
  tool_choice: true,
  parallel_tool_calls: true,
  enable_thinking: true,
  reasoning_effort: true,
  chat_template_kwargs: true,
  continue_final_message: true,
  add_generation_prompt: true,
  extra: true,
};

const chat: All<ChatOptions> = {
  ...sampling,
  ...template,
  response_schema: true,
  response_format: true,
  logprobs: true,
  top_logprobs: true,
  thinking_budget: true,
  prediction: true,
};

const complete: All<CompleteOptions> = { ...sampling, suffix: true, best_of: true, echo: true, logprobs: true };
const embed: All<EmbedOptions> = { ...call, dimensions: true, prompt_name: true, input_type: true };
const rerank: All<RerankOptions> = { ...call, top_n: true };
const tokenize: All<TokenizeOptions> = { ...call, add_special: true, parse_special: true };
const detokenize: All<DetokenizeOptions> = { ...call, keep_special: true };

export const NAMES = { chat, complete, render: template, embed, rerank, tokenize, detokenize };

export function checkNames(method: keyof typeof NAMES, given: object): void {
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(NAMES[method], name)) throw new TypeError(`${method} has no parameter '${name}'`);
  }
}
