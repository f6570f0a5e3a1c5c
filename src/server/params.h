/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields that generating endpoints share, in OpenAI's names and in those that other local servers have added. Each
 * function reads members of `o` into q; mistakes stay in x->in.
 */
#ifndef SERVER_PARAMS_H
#define SERVER_PARAMS_H

#include "server/exchange.h"

enum { PARAMS_MAX_STOPS = 64, PARAMS_MAX_TOKENS = 1 << 24, PARAMS_MAX_DRAFT = 32 };

/* The parameters of the table (params/sampling_table.h) that a protocol has, by its names and within its limits. */
void params_numbers(reader *in, const node *o, sampling_protocol by, runtime_request *q);
/* The same, with logit_bias, samplers and dry_sequence_breakers. */
void params_sampling(exchange *x, const node *o, sampling_protocol by, runtime_request *q);
/* The extensions that are not sampling: cache_prompt, strict_json, ignore_eos, priority, min_tokens; lora is refused by
 * name. */
void params_extras(exchange *x, const node *o, runtime_request *q);
/* At least 1; -1 means until the answer ends, as local servers have it. */
void params_max_tokens(exchange *x, const node *o, const char *key, runtime_request *q);
/* A string or an array of strings. */
void params_stop(exchange *x, const node *o, const char *key, runtime_request *q);

/* The model's name: required, or the server's default. False: it is unknown or missing (answered or in x->in). */
bool params_model(exchange *x, const node *o, bool required, view *out);
/* Whether the server has one model only: then nobody need name it, as with servers that can have no other. */
bool params_one_model(exchange *x);

/* Texts into the arena. False: out of memory (in x->in). */
bool params_json(exchange *x, const node *n, view *out);

/* A prompt or several, as text or as token numbers: one request each, in the arena. *out stays NULL after a failure. */
void params_prompts(exchange *x, const node *input, size_t max, runtime_request **out, size_t *n);
/* The same, with pairs of texts among them (text and suffix). */
void params_pairs(exchange *x, const node *input, size_t max, runtime_request **out, size_t *n);

/* Ollama's keep_alive and the like: a number of seconds or "5m", "1h30m", "-1". */
bool params_keep_alive(exchange *x, const node *o, const char *key, int64_t *out_ms);

#endif
