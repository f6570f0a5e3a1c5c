/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between server and worker: every message there and back, the byte layout, and whatever must be refused. */
#include "unit/support/support.h"

#include "base/log.h"
#include "host/inbox.h"
#include "host/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static arena mem;
static str   out;

static int setup(void **state) {
    (void)state;
    arena_init(&mem, 0);
    str_init(&out);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    arena_deinit(&mem);
    str_deinit(&out);
    return 0;
}

/* The one frame in out. */
static wire_frame only(wire_type type, uint64_t id) {
    wire_frame f;
    size_t     used = 0;
    assert_int_equal(wire_next(out.data, out.len, type >= WIRE_FIRST_UP, &f, &used, NULL), 1);
    assert_int_equal(used, out.len);
    assert_int_equal(f.type, type);
    assert_true(f.id == id);
    return f;
}

static view v(const char *text) { return view_of(text); }

static void assert_view(view a, view b) {
    assert_int_equal(a.len, b.len);
    if (a.len) assert_memory_equal(a.data, b.data, a.len);
}

static void fill_sampling(sampling_params *p) {
    sampling_params_default(p);
    p->temperature = 0.25f;
    p->dynatemp_range = 1.5f;
    p->dynatemp_exponent = 2.5f;
    p->top_k = 41;
    p->top_p = 0.5f;
    p->min_p = 0.125f;
    p->typical_p = 0.75f;
    p->top_n_sigma = 3;
    p->xtc_probability = 0.1f;
    p->xtc_threshold = 0.2f;
    p->repeat_last_n = -1;
    p->repeat_penalty = 1.1f;
    p->frequency_penalty = -0.5f;
    p->presence_penalty = 0.6f;
    p->dry_multiplier = 0.8f;
    p->dry_base = 1.75f;
    p->dry_allowed_length = 3;
    p->dry_last_n = 99;
    p->mirostat = 2;
    p->mirostat_tau = 5;
    p->mirostat_eta = 0.3f;
    p->seed = 0xfedcba9876543210u;
    p->order[0] = SAMPLING_XTC;
    p->order[1] = SAMPLING_TOP_K;
    p->n_order = 2;
}

static void assert_sampling(const sampling_params *a, const sampling_params *b) {
    assert_true(a->temperature == b->temperature && a->dynatemp_range == b->dynatemp_range);
    assert_true(a->dynatemp_exponent == b->dynatemp_exponent && a->top_k == b->top_k && a->top_p == b->top_p);
    assert_true(a->min_p == b->min_p && a->typical_p == b->typical_p && a->top_n_sigma == b->top_n_sigma);
    assert_true(a->xtc_probability == b->xtc_probability && a->xtc_threshold == b->xtc_threshold);
    assert_true(a->repeat_last_n == b->repeat_last_n && a->repeat_penalty == b->repeat_penalty);
    assert_true(a->frequency_penalty == b->frequency_penalty && a->presence_penalty == b->presence_penalty);
    assert_true(a->dry_multiplier == b->dry_multiplier && a->dry_base == b->dry_base);
    assert_true(a->dry_allowed_length == b->dry_allowed_length && a->dry_last_n == b->dry_last_n);
    assert_true(a->mirostat == b->mirostat && a->mirostat_tau == b->mirostat_tau);
    assert_true(a->mirostat_eta == b->mirostat_eta && a->seed == b->seed && a->n_order == b->n_order);
    for (int i = 0; i < a->n_order; i++) assert_int_equal(a->order[i], b->order[i]);
}

static const int32_t       some_ids[] = { 1, -2, INT32_MAX, INT32_MIN, 0 };
static const sampling_bias some_bias[] = { { 7, -INFINITY }, { 9, 0.5f } };
static const view          some_stops[] = { { "\n\n", 2 }, { "", 0 }, { "</s>", 4 } };
static const view          some_blobs[] = { { "\xff\0\x01", 3 }, { "", 0 }, { "png", 3 } };
static const view          some_breakers[] = { { "\xc3\xa9", 2 } };

static void fill_request(runtime_request *q) {
    runtime_request_init(q);
    q->task = RUNTIME_INFILL;
    q->messages = v("[{\"role\":\"user\"}]");
    q->tools = v("[]");
    q->template_vars = v("{\"a\":1}");
    q->continue_final = q->echo = q->raw_answer = q->ignore_eos = q->want_logprob = q->no_cache = q->want_progress =
        true;
    q->text = v("h\xc3\xa9llo");
    q->suffix = v("suffix");
    q->tokens = some_ids;
    q->n_tokens = 5;
    q->tool_choice = RUNTIME_TOOLS_NAMED;
    q->tool_name = v("tool");
    q->parallel_tools = false;
    q->thinking = RUNTIME_THINK_OFF;
    q->effort = v("high");
    q->thinking_budget = 77;
    q->constraint = (runtime_constraint){ RUNTIME_CHOICES, v("[\"a\"]") };
    fill_sampling(&q->sampling);
    q->sampling.bias = some_bias;
    q->sampling.n_bias = 2;
    q->sampling.dry_breakers = some_ids;
    q->sampling.n_dry_breakers = 3;
    q->sampling_set = RUNTIME_SET_ALL & ~RUNTIME_SET_SEED;
    q->dry_breakers = some_breakers;
    q->n_dry_breakers = 1;
    q->max_tokens = 12;
    q->min_tokens = 3;
    q->stop = some_stops;
    q->n_stop = 3;
    q->n_choices = 128;
    q->priority = -4;
    q->client = 0x1122334455667788u;
    q->n_top = 20;
    q->pooling = RUNTIME_POOL_LAST;
    q->dimensions = 32;
    q->blobs = some_blobs;
    q->n_blobs = 3;
}

static void assert_request(const runtime_request *a, const runtime_request *b) {
    assert_int_equal(a->task, b->task);
    assert_view(a->messages, b->messages);
    assert_view(a->tools, b->tools);
    assert_view(a->template_vars, b->template_vars);
    assert_true(a->continue_final == b->continue_final && a->echo == b->echo && a->raw_answer == b->raw_answer);
    assert_true(a->ignore_eos == b->ignore_eos && a->want_logprob == b->want_logprob && a->no_cache == b->no_cache);
    assert_true(a->want_progress == b->want_progress && a->parallel_tools == b->parallel_tools);
    assert_view(a->text, b->text);
    assert_view(a->suffix, b->suffix);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * 4);
    assert_int_equal(a->tool_choice, b->tool_choice);
    assert_view(a->tool_name, b->tool_name);
    assert_true(a->thinking == b->thinking && a->thinking_budget == b->thinking_budget);
    assert_view(a->effort, b->effort);
    assert_int_equal(a->constraint.kind, b->constraint.kind);
    assert_view(a->constraint.text, b->constraint.text);
    assert_sampling(&a->sampling, &b->sampling);
    assert_int_equal(a->sampling.n_bias, b->sampling.n_bias);
    for (size_t i = 0; i < a->sampling.n_bias; i++) {
        assert_int_equal(a->sampling.bias[i].token, b->sampling.bias[i].token);
        assert_true(a->sampling.bias[i].bias == b->sampling.bias[i].bias);
    }
    assert_int_equal(a->sampling.n_dry_breakers, b->sampling.n_dry_breakers);
    assert_memory_equal(a->sampling.dry_breakers, b->sampling.dry_breakers, a->sampling.n_dry_breakers * 4);
    assert_int_equal(a->sampling_set, b->sampling_set);
    assert_int_equal(a->n_dry_breakers, b->n_dry_breakers);
    for (size_t i = 0; i < a->n_dry_breakers; i++) assert_view(a->dry_breakers[i], b->dry_breakers[i]);
    assert_int_equal(a->n_stop, b->n_stop);
    for (size_t i = 0; i < a->n_stop; i++) assert_view(a->stop[i], b->stop[i]);
    assert_true(a->max_tokens == b->max_tokens && a->min_tokens == b->min_tokens && a->n_choices == b->n_choices);
    assert_true(a->priority == b->priority && a->client == b->client && a->n_top == b->n_top);
    assert_true(a->pooling == b->pooling && a->dimensions == b->dimensions);
    assert_int_equal(a->n_blobs, b->n_blobs);
    for (size_t i = 0; i < a->n_blobs; i++) assert_view(a->blobs[i], b->blobs[i]);
}

static void test_request(void **state) {
    runtime_request q, got;
    const wire_type types[] = { WIRE_SUBMIT, WIRE_RENDER, WIRE_COUNT };
    (void)state;
    fill_request(&q);
    for (size_t i = 0; i < 3; i++) {
        str_clear(&out);
        assert_int_equal(wire_put_request(&out, types[i], 99, &q, NULL), 0);
        runtime_request_init(&got);
        assert_int_equal(wire_get_request(only(types[i], 99).body, &mem, &got, NULL), 0);
        assert_request(&q, &got);
    }
}

static void test_open(void **state) {
    static const char *const stops[] = { "one", "two" };
    wire_open                o = { .name = "m:1", .fault = "", .log_level = LOG_WARN, .queue_bytes = 12345 }, got;
    (void)state;
    o.runtime = (runtime_options){ .path = "/models/m.gguf",
                                   .template_text = "{{ x }}",
                                   .max_preparing = 3,
                                   .spare_bytes = 77,
                                   .grammar_bytes = 1 << 20 };
    o.runtime.engine = (engine_options){ .n_ctx = 1,
                                         .cache_bytes = (size_t)5 << 32,
                                         .page_tokens = 16,
                                         .max_seqs = 4,
                                         .step_tokens = 5,
                                         .max_waiting = 6,
                                         .target_step_ms = 7,
                                         .n_threads = 8,
                                         .k_type = 1,
                                         .v_type = 2,
                                         .cpu = 0xffffffffu,
                                         .no_prefix_cache = true,
                                         .host_cache_bytes = 9,
                                         .disk_cache_dir = "/cache",
                                         .disk_cache_bytes = 10 };
    o.runtime.settings = (runtime_settings){ .system = "be brief",
                                             .messages = "[]",
                                             .template_text = "t",
                                             .sampling_set = RUNTIME_SET_DYNATEMP | RUNTIME_SET_TOP_K,
                                             .stop = stops,
                                             .n_stop = 2,
                                             .max_tokens = 11,
                                             .min_tokens = 1,
                                             .n_ctx = 2048,
                                             .rope_type = "yarn",
                                             .rope_factor = 2.5,
                                             .rope_original_context = 512 };
    fill_sampling(&o.runtime.settings.sampling);
    assert_int_equal(wire_put_open(&out, &o, NULL), 0);
    assert_int_equal(wire_get_open(only(WIRE_OPEN, 0).body, &mem, &got, NULL), 0);
    const engine_options *a = &o.runtime.engine, *b = &got.runtime.engine;
    assert_true(a->n_ctx == b->n_ctx && a->cache_bytes == b->cache_bytes && a->page_tokens == b->page_tokens);
    assert_true(a->max_seqs == b->max_seqs && a->step_tokens == b->step_tokens && a->max_waiting == b->max_waiting);
    assert_true(a->target_step_ms == b->target_step_ms && a->n_threads == b->n_threads && a->k_type == b->k_type);
    assert_true(a->v_type == b->v_type && a->cpu == b->cpu && a->no_prefix_cache == b->no_prefix_cache);
    assert_true(a->host_cache_bytes == b->host_cache_bytes && a->disk_cache_bytes == b->disk_cache_bytes);
    assert_string_equal(b->disk_cache_dir, "/cache");
    assert_string_equal(got.runtime.path, "/models/m.gguf");
    assert_string_equal(got.runtime.template_text, "{{ x }}");
    assert_true(got.runtime.max_preparing == 3 && got.runtime.grammar_bytes == 1 << 20);
    assert_true(got.runtime.spare_bytes == 77);
    const runtime_settings *s = &got.runtime.settings;
    assert_string_equal(s->system, "be brief");
    assert_string_equal(s->messages, "[]");
    assert_string_equal(s->template_text, "t");
    assert_sampling(&o.runtime.settings.sampling, &s->sampling);
    assert_true(s->sampling_set == o.runtime.settings.sampling_set && s->n_stop == 2);
    assert_string_equal(s->stop[1], "two");
    assert_true(s->max_tokens == 11 && s->min_tokens == 1 && s->n_ctx == 2048 && s->rope_factor == 2.5);
    assert_string_equal(s->rope_type, "yarn");
    assert_int_equal(s->rope_original_context, 512);
    assert_string_equal(got.name, "m:1");
    assert_string_equal(got.fault, "");
    assert_true(got.log_level == LOG_WARN && got.queue_bytes == 12345);
    /* What is absent stays absent. */
    o.runtime = (runtime_options){ .path = "p" };
    str_clear(&out);
    assert_int_equal(wire_put_open(&out, &o, NULL), 0);
    assert_int_equal(wire_get_open(only(WIRE_OPEN, 0).body, &mem, &got, NULL), 0);
    assert_null(got.runtime.template_text);
    assert_null(got.runtime.engine.disk_cache_dir);
    assert_null(got.runtime.settings.system);
    assert_null(got.runtime.settings.rope_type);
}

static void get_event(const runtime_event *ev, runtime_event *got) {
    str_clear(&out);
    assert_int_equal(wire_put_event(&out, 5, ev, NULL), 0);
    assert_int_equal(wire_get_event(only(WIRE_EVENT, 5).body, &mem, got, NULL), 0);
    assert_true(got->kind == ev->kind && got->choice == ev->choice && got->last == ev->last);
}

static void test_events(void **state) {
    runtime_event ev, got;
    err           why = { ERR_IO, "a sentence" };
    float         vector[] = { 1, -0.5f, NAN };
    runtime_top   top[] = { { 3, -1, { "\xff", 1 } }, { 4, -INFINITY, { "", 0 } } };
    (void)state;
    ev = (runtime_event){ .kind = RUNTIME_STARTED, .prompt_tokens = 31 };
    get_event(&ev, &got);
    assert_int_equal(got.prompt_tokens, 31);
    ev = (runtime_event){ .kind = RUNTIME_PROGRESS, .done = 1, .total = 2, .cached = 3 };
    get_event(&ev, &got);
    assert_true(got.done == 1 && got.total == 2 && got.cached == 3);
    ev = (runtime_event){ .kind = RUNTIME_TOKEN,
                          .token = 9,
                          .logprob = -2.5f,
                          .bytes = { "\xe2\x82", 2 },
                          .top = top,
                          .n_top = 2,
                          .choice = 127 };
    get_event(&ev, &got);
    assert_true(got.token == 9 && got.logprob == -2.5f && got.n_top == 2);
    assert_view(got.bytes, ev.bytes);
    assert_true(got.top[0].token == 3 && got.top[0].logprob == -1 && got.top[1].logprob == -INFINITY);
    assert_view(got.top[0].bytes, top[0].bytes);
    for (int kind = RUNTIME_CONTENT; kind <= RUNTIME_REASONING; kind++) {
        ev = (runtime_event){ .kind = (runtime_event_kind)kind, .text = v("z\xc3\xa9") };
        get_event(&ev, &got);
        assert_view(got.text, ev.text);
    }
    ev = (runtime_event){ .kind = RUNTIME_TOOL_BEGIN, .index = 2, .id = v("call"), .name = v("f") };
    get_event(&ev, &got);
    assert_int_equal(got.index, 2);
    assert_view(got.id, ev.id);
    assert_view(got.name, ev.name);
    ev = (runtime_event){ .kind = RUNTIME_TOOL_ARGUMENTS, .index = 2, .text = v("{}") };
    get_event(&ev, &got);
    assert_view(got.text, ev.text);
    ev = (runtime_event){ .kind = RUNTIME_TOOL_END, .index = 4 };
    get_event(&ev, &got);
    assert_int_equal(got.index, 4);
    ev = (runtime_event){ .kind = RUNTIME_EMBEDDING, .vector = vector, .n_vector = 3 };
    get_event(&ev, &got);
    assert_int_equal(got.n_vector, 3);
    assert_memory_equal(got.vector, vector, sizeof vector);
    ev = (runtime_event){ .kind = RUNTIME_SCORE, .score = 0.75f };
    get_event(&ev, &got);
    assert_true(got.score == 0.75f);
    ev = (runtime_event){ .kind = RUNTIME_CLASSES, .vector = vector, .n_vector = 3, .text = v("[\"a\",\"b\",\"c\"]") };
    get_event(&ev, &got);
    assert_int_equal(got.n_vector, 3);
    assert_memory_equal(got.vector, vector, sizeof vector);
    assert_view(got.text, ev.text);
    ev = (runtime_event){ .kind = RUNTIME_DONE,
                          .last = true,
                          .finish = RUNTIME_STOP_STRING,
                          .stop_index = 1,
                          .usage = { 1, 2, 3, 4, 5, 6, true, 0.5, 1.5, 2.5, 3.5 } };
    get_event(&ev, &got);
    assert_true(got.finish == RUNTIME_STOP_STRING && got.stop_index == 1 && got.usage.prompt_tokens == 1);
    assert_true(got.usage.cached_tokens == 2 && got.usage.generated_tokens == 3 && got.usage.reasoning_tokens == 4);
    assert_true(got.usage.prepare_s == 0.5 && got.usage.queued_s == 1.5 && got.usage.prompt_s == 2.5);
    assert_true(got.usage.generate_s == 3.5);
    ev = (runtime_event){ .kind = RUNTIME_ERROR, .choice = -1, .last = true, .error = &why };
    get_event(&ev, &got);
    assert_int_equal(got.error->code, ERR_IO);
    assert_string_equal(got.error->msg, "a sentence");
}

static void test_calls(void **state) {
    wire_text_call t = { v("text"), true, false }, tt;
    wire_ids_call  i = { some_ids, 5, true }, ii;
    wire_result r = { .error = { ERR_ARG, "no" }, .text = { "\xff\0x", 3 }, .ids = some_ids, .n_ids = 4, .count = 7 };
    wire_result rr;
    (void)state;
    assert_int_equal(wire_put_text_call(&out, 1, &t, NULL), 0);
    assert_int_equal(wire_get_text_call(only(WIRE_TOKENIZE, 1).body, &tt, NULL), 0);
    assert_view(t.text, tt.text);
    assert_true(tt.add_special && !tt.parse_special);
    str_clear(&out);
    assert_int_equal(wire_put_ids_call(&out, 2, &i, NULL), 0);
    assert_int_equal(wire_get_ids_call(only(WIRE_DETOKENIZE, 2).body, &mem, &ii, NULL), 0);
    assert_true(ii.n == 5 && ii.keep_special);
    assert_memory_equal(ii.ids, some_ids, 20);
    str_clear(&out);
    assert_int_equal(wire_put_result(&out, 3, &r, NULL), 0);
    assert_int_equal(wire_get_result(only(WIRE_RESULT, 3).body, &mem, &rr, NULL), 0);
    assert_int_equal(rr.error.code, ERR_ARG);
    assert_string_equal(rr.error.msg, "no");
    assert_view(rr.text, r.text);
    assert_true(rr.n_ids == 4 && rr.count == 7);
    assert_memory_equal(rr.ids, some_ids, 16);
}

static void test_small_ones(void **state) {
    int          level;
    float        fraction;
    err          why = { ERR_FORMAT, "the file is odd" }, got_why;
    runtime_info i = { .path = "p",
                       .name = "n",
                       .family = "llama",
                       .format = "GGUF",
                       .quant = "Q8_0",
                       .n_params = 1,
                       .file_bytes = 2,
                       .n_ctx = 3,
                       .n_ctx_train = 4,
                       .n_layer = 5,
                       .n_embd = 6,
                       .n_vocab = 7,
                       .can_chat = true,
                       .can_think = true,
                       .can_infill = true,
                       .template_text = "t",
                       .template_origin = NULL },
                 ii;
    need n = { 1,
               2,
               3,
               4,
               5,
               6,
               7,
               8,
               9,
               { { { "cpu", 10 }, { "cuda:0", 13 } }, 2 },
               .token_bytes = 11,
               .token_products = 12,
               .has_draft = 1 },
         nn;
    wire_pong p = { .stamp = 77 }, pp;
    (void)state;
    assert_int_equal(wire_put_ping(&out, 9, LOG_OFF, NULL), 0);
    assert_int_equal(wire_get_ping(only(WIRE_PING, 9).body, &level, NULL), 0);
    assert_int_equal(level, LOG_OFF);
    const wire_type empty[] = { WIRE_LOAD, WIRE_CANCEL, WIRE_PAUSE, WIRE_RESUME, WIRE_QUIT };
    for (size_t k = 0; k < 5; k++) {
        str_clear(&out);
        assert_int_equal(wire_put_empty(&out, empty[k], k, NULL), 0);
        assert_int_equal(only(empty[k], k).body.len, 0);
    }
    str_clear(&out);
    assert_int_equal(wire_put_loading(&out, 0.5f, NULL), 0);
    assert_int_equal(wire_get_loading(only(WIRE_LOADING, 0).body, &fraction, NULL), 0);
    assert_true(fraction == 0.5f);
    str_clear(&out);
    assert_int_equal(wire_put_failed(&out, &why, NULL), 0);
    assert_int_equal(wire_get_failed(only(WIRE_FAILED, 0).body, &got_why, NULL), 0);
    assert_true(got_why.code == ERR_FORMAT && strcmp(got_why.msg, why.msg) == 0);
    str_clear(&out);
    assert_int_equal(wire_put_ready(&out, &i, NULL), 0);
    assert_int_equal(wire_get_ready(only(WIRE_READY, 0).body, &mem, &ii, NULL), 0);
    assert_string_equal(ii.path, "p");
    assert_string_equal(ii.name, "n");
    assert_string_equal(ii.family, "llama");
    assert_string_equal(ii.format, "GGUF");
    assert_string_equal(ii.quant, "Q8_0");
    assert_string_equal(ii.template_text, "t");
    assert_null(ii.template_origin);
    assert_true(ii.n_params == 1 && ii.file_bytes == 2 && ii.n_ctx == 3 && ii.n_ctx_train == 4 && ii.n_layer == 5);
    assert_true(ii.n_embd == 6 && ii.n_vocab == 7 && ii.can_chat && !ii.can_tools && ii.can_think && !ii.can_embed);
    assert_true(ii.can_infill);
    str_clear(&out);
    assert_int_equal(wire_put_need(&out, &n, NULL), 0);
    assert_int_equal(wire_get_need(only(WIRE_NEED, 0).body, &nn, NULL), 0);
    assert_true(nn.n_ctx == 1 && nn.n_ctx_train == 2 && nn.n_sequences == 3 && nn.weights_bytes == 4);
    assert_true(nn.cache_bytes_per_1k == 5 && nn.sequence_bytes == 6 && nn.cache_bytes == 7 && nn.scratch_bytes == 8);
    assert_true(nn.other_bytes == 9 && nn.bytes.n == 2 && device_memory_on(&nn.bytes, "cpu") == 10 &&
                device_memory_on(&nn.bytes, "cuda:0") == 13 && nn.token_bytes == 11 && nn.token_products == 12);
    /* Every counter a number of its own. */
    engine_stats *g = &p.stats.engine;
    uint64_t     *wide[] = { &g->steps,
                             &g->tokens_evaluated,
                             &g->tokens_cached,
                             &g->tokens_generated,
                             &g->preemptions,
                             &g->guide_masks,
                             &g->disk_bytes,
                             &g->to_host,
                             &g->from_host,
                             &g->from_disk,
                             &g->to_disk,
                             &g->not_written,
                             &g->evictions,
                             &g->experts.hits,
                             &g->experts.misses,
                             &g->experts.evicted,
                             &g->experts.bytes,
                             &p.stats.requests,
                             &p.stats.errors,
                             &p.stats.cancelled,
                             &p.stats.grammar_hits,
                             &p.stats.grammar_misses };
    int    *narrow[] = { &g->running,      &g->waiting,        &g->paused,        &g->pages_total,   &g->pages_unused,
                         &g->pages_cached, &p.stats.preparing, &p.stats.grammars, &g->experts.slots, &g->experts.experts };
    size_t *sizes[] = { &g->states, &g->state_bytes, &g->host_pages, &g->host_bytes, &g->disk_entries };
    for (size_t k = 0; k < sizeof wide / sizeof *wide; k++) *wide[k] = 100 + k;
    for (size_t k = 0; k < sizeof narrow / sizeof *narrow; k++) *narrow[k] = 200 + (int)k;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) *sizes[k] = 300 + k;
    g->guide_s = 1.25;
    g->guide_wait_s = 2.25;
    str_clear(&out);
    assert_int_equal(wire_put_pong(&out, 4, &p, NULL), 0);
    memset(&pp, 0, sizeof pp);
    assert_int_equal(wire_get_pong(only(WIRE_PONG, 4).body, &pp, NULL), 0);
    assert_true(pp.stamp == 77);
    const char *from = (const char *)&p, *to = (const char *)&pp; /* the same member of the other */
    for (size_t k = 0; k < sizeof wide / sizeof *wide; k++)
        assert_true(*(const uint64_t *)(const void *)(to + ((const char *)wide[k] - from)) == 100 + k);
    for (size_t k = 0; k < sizeof narrow / sizeof *narrow; k++)
        assert_int_equal(*(const int *)(const void *)(to + ((const char *)narrow[k] - from)), 200 + k);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        assert_int_equal(*(const size_t *)(const void *)(to + ((const char *)sizes[k] - from)), 300 + k);
    assert_true(pp.stats.engine.guide_s == 1.25 && pp.stats.engine.guide_wait_s == 2.25);
}

/* The layout as wire.h draws it, byte for byte. */
static void test_layout(void **state) {
    static const unsigned char frame[] = { 17, 0, 0, 0, WIRE_VERSION, 17, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
                                           0x22, 0x11,
                                           /* kind, choice, not the last, text */
                                           3, 0, 0, 0, 2, 0, 0, 0, 0, 4, 0, 0, 0, 'a', 'b', 'c', 'd' };
    runtime_event              ev = { .kind = RUNTIME_CONTENT, .choice = 2, .text = { "abcd", 4 } };
    (void)state;
    assert_int_equal(wire_put_event(&out, 0x1122334455667788u, &ev, NULL), 0);
    assert_int_equal(out.len, sizeof frame);
    unsigned char expected[sizeof frame];
    memcpy(expected, frame, sizeof frame);
    expected[4] = WIRE_VERSION;
    expected[5] = WIRE_EVENT;
    assert_memory_equal(out.data, expected, sizeof frame);
}

/* Behind the last field: how many, and each with eight bytes of length; they are read where they lie. */
static void test_blobs(void **state) {
    static const unsigned char tail[] = { 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0 };
    runtime_request            q, got;
    view                       many[RUNTIME_MAX_BLOBS + 1];
    err                        e = { 0 };
    (void)state;
    runtime_request_init(&q);
    q.blobs = some_blobs;
    q.n_blobs = 2;
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, NULL), 0);
    assert_memory_equal(out.data + out.len - sizeof tail, tail, sizeof tail);
    view body = only(WIRE_SUBMIT, 1).body;
    runtime_request_init(&got);
    assert_int_equal(wire_get_request(body, &mem, &got, NULL), 0);
    assert_int_equal(got.n_blobs, 2);
    assert_ptr_equal(got.blobs[0].data, out.data + out.len - 11);

    /* One byte more than fits together, in both directions; nothing is allocated for what was only announced. */
    uint64_t large = RUNTIME_MAX_BLOB_BYTES;
    memcpy(out.data + out.len - 19, &large, 8);
    assert_int_equal(wire_get_request(body, &mem, &got, &e), ERR_FORMAT);
    assert_string_equal(e.msg, "images is cut off");
    large++;
    memcpy(out.data + out.len - 19, &large, 8);
    assert_int_equal(wire_get_request(body, &mem, &got, &e), ERR_FORMAT);
    assert_string_equal(e.msg, "images are too large together");
    uint32_t count = RUNTIME_MAX_BLOBS + 1;
    memcpy(out.data + out.len - sizeof tail, &count, 4);
    assert_int_equal(wire_get_request(body, &mem, &got, &e), ERR_FORMAT);
    assert_string_equal(e.msg, "images are too many");

    char *half = calloc(1, RUNTIME_MAX_BLOB_BYTES / 2 + 1);
    assert_non_null(half);
    many[0] = many[1] = (view){ half, RUNTIME_MAX_BLOB_BYTES / 2 };
    q.blobs = many;
    str_clear(&out);
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), 0);
    runtime_request_init(&got);
    assert_int_equal(wire_get_request(only(WIRE_SUBMIT, 1).body, &mem, &got, NULL), 0);
    assert_true(got.n_blobs == 2 && got.blobs[1].len == RUNTIME_MAX_BLOB_BYTES / 2);
    many[1].len++;
    str_clear(&out);
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), ERR_LIMIT);
    assert_string_equal(e.msg, "images are too large together");
    for (size_t i = 0; i < RUNTIME_MAX_BLOBS + 1; i++) many[i] = (view){ half, 1 };
    q.n_blobs = RUNTIME_MAX_BLOBS + 1;
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), ERR_LIMIT);
    assert_string_equal(e.msg, "images are too many");
    q.n_blobs = RUNTIME_MAX_BLOBS;
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), 0);
    free(half);
}

static void test_bad_heads(void **state) {
    wire_frame f;
    size_t     used;
    (void)state;
    assert_int_equal(wire_put_empty(&out, WIRE_QUIT, 0, NULL), 0);
    for (size_t n = 0; n < WIRE_HEAD_BYTES; n++) assert_int_equal(wire_next(out.data, n, false, &f, &used, NULL), 0);
    assert_int_equal(wire_next(out.data, out.len, false, &f, &used, NULL), 1);
    assert_true(wire_next(out.data, out.len, true, &f, &used, NULL) < 0); /* the wrong way */
    const struct {
        int           at;
        unsigned char value;
    } wrong[] = { { 4, WIRE_VERSION - 1 },
                  { 4, WIRE_VERSION + 1 },
                  { 5, WIRE_TYPE_COUNT },
                  { 5, 255 },
                  { 6, 1 },
                  { 7, 1 },
                  { 3, 0x41 } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char old = out.data[wrong[i].at];
        out.data[wrong[i].at] = (char)wrong[i].value;
        assert_true(wire_next(out.data, out.len, false, &f, &used, NULL) < 0);
        out.data[wrong[i].at] = old;
    }
}

/* Every prefix of a body is an error, and so is a body with something behind it. */
static void test_cut_bodies(void **state) {
    runtime_request q, got;
    runtime_event   ev;
    (void)state;
    fill_request(&q);
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, NULL), 0);
    str_push(&out, 'x');
    view body = { out.data + WIRE_HEAD_BYTES, out.len - WIRE_HEAD_BYTES };
    for (size_t n = 0; n <= body.len; n++) {
        char *exact = malloc(n + 1); /* a read beyond the end is seen */
        memcpy(exact, body.data, n);
        int rc = wire_get_request((view){ exact, n }, &mem, &got, NULL);
        if (n == body.len - 1)
            assert_int_equal(rc, 0);
        else
            assert_true(rc < 0);
        free(exact);
    }
    /* Single bytes changed: an error or another request, never more. */
    uint64_t random = 7;
    for (int i = 0; i < 20000; i++) {
        size_t at = test_random(&random) % (body.len - 1);
        char   old = body.data[at];
        out.data[WIRE_HEAD_BYTES + at] = (char)test_random(&random);
        (void)wire_get_request((view){ body.data, body.len - 1 }, &mem, &got, NULL);
        (void)wire_get_event((view){ body.data, body.len - 1 }, &mem, &ev, NULL);
        out.data[WIRE_HEAD_BYTES + at] = old;
        arena_reset(&mem);
    }
}

static void test_refused_values(void **state) {
    runtime_request q;
    runtime_event   ev = { .kind = RUNTIME_CONTENT, .text = { "\xc3", 1 } };
    err             e = { 0 };
    (void)state;
    runtime_request_init(&q);
    str_puts(&out, "before");
    q.text = (view){ "\xff\xfe", 2 };
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), ERR_ARG);
    assert_string_equal(e.msg, "text is not UTF-8");
    q.text = (view){ 0 };
    q.n_choices = 129;
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), ERR_ARG);
    assert_string_equal(e.msg, "n lies outside its range");
    q.n_choices = 1;
    q.task = (runtime_task)17;
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), ERR_ARG);
    assert_int_equal(wire_put_event(&out, 1, &ev, &e), ERR_ARG);
    ev = (runtime_event){ .kind = RUNTIME_CONTENT, .last = true };
    assert_int_equal(wire_put_event(&out, 1, &ev, &e), ERR_ARG);
    assert_string_equal(e.msg, "last is set in the middle");
    ev = (runtime_event){ .kind = RUNTIME_ERROR, .choice = -1, .last = true };
    assert_int_equal(wire_put_event(&out, 1, &ev, &e), ERR_ARG);
    assert_string_equal(e.msg, "error is missing");
    wire_open o = { .runtime.path = "p", .name = "n" };
    assert_int_equal(wire_put_open(&out, &o, &e), ERR_ARG);
    assert_string_equal(e.msg, "fault is missing");
    runtime_request_init(&q);
    q.stop = &(view){ "\xff", 1 };
    q.n_stop = 1;
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), ERR_ARG);
    assert_string_equal(e.msg, "stop is not UTF-8"); /* an item is named by its list */
    runtime_request_init(&q);
    q.sampling.n_order = SAMPLING_STAGE_COUNT + 1;
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), ERR_LIMIT);
    assert_string_equal(e.msg, "samplers is too long");
    q.sampling.n_order = 1;
    q.sampling.order[0] = SAMPLING_STAGE_COUNT;
    assert_int_equal(wire_put_request(&out, WIRE_SUBMIT, 1, &q, &e), ERR_ARG);
    assert_string_equal(e.msg, "samplers lies outside its range");
    assert_int_equal(wire_put_loading(&out, NAN, &e), ERR_ARG);
    assert_int_equal(wire_put_ping(&out, 1, 99, &e), ERR_ARG);
    assert_string_equal(str_cstr(&out), "before"); /* a failure leaves nothing */
    static const char *const bad[] = { "\x80",         "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                       "abcdefgh\xc3", "\xe2\x82" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(wire_is_utf8(view_of(bad[i])));
    for (size_t n = 1; n < 20; n++) { /* wherever it stands, in texts of every length */
        for (size_t at = 0; at < n; at++) {
            char text[20];
            memset(text, 'a', sizeof text);
            text[at] = '\xe9';
            assert_false(wire_is_utf8((view){ text, n }));
            text[at] = 'e';
            assert_true(wire_is_utf8((view){ text, n }));
        }
    }
    assert_true(wire_is_utf8((view){ NULL, 0 }));
    assert_true(wire_is_utf8(view_of("plain text, \xc3\xa9, \xe2\x82\xac, \xf0\x9f\x94\xa5 and more plain text")));
}

/* Frames through a socket in pieces of every kind; nothing is allocated for a length that was only announced. */
static void test_inbox(void **state) {
    int        pair[2];
    inbox      in;
    wire_frame f;
    uint64_t   random = 3;
    size_t     sent = 0, got = 0;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    for (int i = 0; i < 300; i++) {
        size_t        n = i % 50 == 49 ? 300000 : test_random(&random) % 200;
        char         *text = malloc(n + 1);
        runtime_event ev = { .kind = RUNTIME_CONTENT, .text = { memset(text, 'a' + i % 26, n), n } };
        assert_int_equal(wire_put_event(&out, (uint64_t)i, &ev, NULL), 0);
        free(text);
    }
    inbox_init(&in, true);
    assert_int_equal(inbox_read(&in, pair[1], MSG_DONTWAIT, NULL), ERR_BUSY);
    while (got < 300) {
        int rc;
        if (sent < out.len) {
            size_t  n = 1 + test_random(&random) % 9000;
            ssize_t k = send(pair[0], out.data + sent, n < out.len - sent ? n : out.len - sent, MSG_DONTWAIT);
            if (k > 0) sent += (size_t)k;
        }
        (void)inbox_read(&in, pair[1], MSG_DONTWAIT, NULL);
        while ((rc = inbox_next(&in, &f, NULL)) == 1) {
            runtime_event ev;
            assert_true(f.id == got);
            assert_int_equal(wire_get_event(f.body, &mem, &ev, NULL), 0);
            if (ev.text.len) assert_int_equal(ev.text.data[ev.text.len - 1], 'a' + (int)(got % 26));
            got++;
        }
        assert_int_equal(rc, 0);
    }
    str_clear(&out);
    assert_int_equal(wire_put_empty(&out, WIRE_PONG, 0, NULL), 0);
    uint32_t huge = 500u << 20;
    memcpy(out.data, &huge, 4);
    assert_int_equal(send(pair[0], out.data, out.len, 0), (ssize_t)out.len);
    assert_int_equal(inbox_read(&in, pair[1], 0, NULL), 1);
    assert_int_equal(inbox_next(&in, &f, NULL), 0);
    assert_true(in.cap <= 1 << 20);
    close(pair[0]);
    assert_int_equal(inbox_read(&in, pair[1], 0, NULL), 0);
    close(pair[1]);
    inbox_deinit(&in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_request, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open, setup, teardown),
        cmocka_unit_test_setup_teardown(test_events, setup, teardown),
        cmocka_unit_test_setup_teardown(test_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_layout, setup, teardown),
        cmocka_unit_test_setup_teardown(test_blobs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_heads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_bodies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inbox, setup, teardown),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
