/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function per structure walks its fields and either writes or reads them, so the two directions cannot drift
 * apart. A walk goes on after a failure and does nothing; the first failure is kept.
 */
#include "host/wire.h"

#include "base/log.h"
#include "base/num.h"

#include <limits.h>
#include <string.h>

enum {
    MAX_SHORT = 4096,         /* bytes of names and paths */
    MAX_LIST = 1 << 16,       /* stop texts, breakers */
    MAX_IDS = 1 << 26,        /* tokens in one frame */
    MAX_TOP = 20,             /* rivals of a token */
    MAX_TOP_BYTES = 64 << 10, /* of one of them */
    MAX_VECTOR = 1 << 20,
    MAX_CHOICES = 128,
};

typedef struct wire {
    str        *out; /* writing; NULL: reading */
    const char *at, *end;
    arena      *mem;
    const char *failed; /* the field at fault */
    const char *why;
    int         code;
} wire;

/* --- frames --- */

static void put_head(char *to, size_t bytes, wire_type type, uint64_t id) {
    uint32_t n = (uint32_t)bytes;
    memcpy(to, &n, 4);
    to[4] = WIRE_VERSION;
    to[5] = (char)type;
    to[6] = to[7] = 0;
    memcpy(to + 8, &id, 8);
}

int wire_next(const char *data, size_t bytes, bool up, wire_frame *out, size_t *used, err *e) {
    uint32_t n;
    if (bytes < WIRE_HEAD_BYTES) {
        *used = WIRE_HEAD_BYTES;
        return 0;
    }
    memcpy(&n, data, 4);
    memcpy(&out->id, data + 8, 8);
    unsigned version = (unsigned char)data[4], type = (unsigned char)data[5];
    if (version != WIRE_VERSION) return err_set(e, ERR_FORMAT, "a frame of version %u, not %d", version, WIRE_VERSION);
    if (type >= WIRE_TYPE_COUNT || (type >= WIRE_FIRST_UP) != up || data[6] || data[7])
        return err_set(e, ERR_FORMAT, "a frame of unknown type %u", type);
    if (n > (up ? WIRE_MAX_UP : WIRE_MAX_DOWN)) return err_set(e, ERR_LIMIT, "a frame of %u bytes", n);
    *used = WIRE_HEAD_BYTES + (size_t)n;
    if (bytes < *used) return 0;
    out->type = (wire_type)type;
    out->body = (view){ data + WIRE_HEAD_BYTES, n };
    return 1;
}

static wire begin_frame(str *out, size_t *begin) {
    static const char head[WIRE_HEAD_BYTES];
    *begin = out->len;
    str_append(out, head, sizeof head);
    return (wire){ .out = out };
}

static int end_frame(wire *w, size_t begin, wire_type type, uint64_t id, err *e) {
    size_t bytes = w->out->len - begin - WIRE_HEAD_BYTES;
    if (!str_ok(w->out)) {
        w->out->failed = false; /* the frames before this one are whole */
        w->out->len = begin;
        return err_set_nomem(e);
    }
    if (!w->failed && bytes > (type >= WIRE_FIRST_UP ? WIRE_MAX_UP : WIRE_MAX_DOWN)) {
        w->failed = "request";
        w->why = "is too long";
        w->code = ERR_LIMIT;
    }
    if (w->failed) {
        w->out->len = begin;
        return err_set(e, w->code == ERR_LIMIT ? ERR_LIMIT : ERR_ARG, "%s %s", w->failed, w->why);
    }
    put_head(w->out->data + begin, bytes, type, id);
    return 0;
}

static wire begin_body(view body, arena *mem) {
    return (wire){ .at = body.data, .end = body.data + body.len, .mem = mem };
}

static int end_body(const wire *w, err *e) {
    if (w->failed && w->code == ERR_NOMEM) return err_set_nomem(e);
    if (w->failed) return err_set(e, ERR_FORMAT, "%s %s", w->failed, w->why);
    if (w->at != w->end) return err_set(e, ERR_FORMAT, "%zu bytes too many", (size_t)(w->end - w->at));
    return 0;
}

/* --- fields --- */

static void fail(wire *w, const char *field, const char *why, int code) {
    if (w->failed) return;
    w->failed = field;
    w->why = why;
    w->code = code;
}

static void raw(wire *w, void *p, size_t n, const char *field) {
    if (w->failed) return;
    if (w->out) {
        str_append(w->out, p, n);
    } else if ((size_t)(w->end - w->at) < n) {
        fail(w, field, "is cut off", ERR_FORMAT);
    } else {
        memcpy(p, w->at, n);
        w->at += n;
    }
}

static void put_i64(wire *w, int64_t *v, int64_t min, int64_t max, const char *field) {
    raw(w, v, sizeof *v, field);
    if (!w->failed && (*v < min || *v > max)) fail(w, field, "lies outside its range", ERR_ARG);
}

static void put_u64(wire *w, uint64_t *v, const char *field) { raw(w, v, sizeof *v, field); }

static void put_int(wire *w, int *v, int min, int max, const char *field) {
    int32_t x = w->out ? *v : 0;
    raw(w, &x, sizeof x, field);
    if (!w->failed && (x < min || x > max)) fail(w, field, "lies outside its range", ERR_ARG);
    if (!w->failed) *v = x;
}

static void put_bool(wire *w, bool *v, const char *field) {
    unsigned char x = w->out ? *v : 0; /* what is read into may be anything */
    raw(w, &x, 1, field);
    if (!w->failed && x > 1) fail(w, field, "is neither true nor false", ERR_FORMAT);
    if (!w->failed) *v = x != 0;
}

static void put_size(wire *w, size_t *v, const char *field) {
    uint64_t x = w->out ? *v : 0;
    raw(w, &x, sizeof x, field);
    if (!w->failed && x > SIZE_MAX / 2) fail(w, field, "lies outside its range", ERR_ARG);
    if (!w->failed) *v = (size_t)x;
}

static void put_float(wire *w, float *v, const char *field) { raw(w, v, sizeof *v, field); }
static void put_double(wire *w, double *v, const char *field) { raw(w, v, sizeof *v, field); }

/* An enumeration with the values 0 .. count - 1. */
#define PUT_ENUM(w, v, count, field)                                                                                   \
    do {                                                                                                               \
        int value_ = (int)(v);                                                                                         \
        put_int(w, &value_, 0, (count)-1, field);                                                                      \
        (v) = value_;                                                                                                  \
    } while (0)

static void put_count(wire *w, size_t *n, size_t max, const char *field) {
    uint32_t x = *n > UINT32_MAX ? UINT32_MAX : (uint32_t)*n;
    raw(w, &x, sizeof x, field);
    if (!w->failed && x > max) fail(w, field, "is too long", ERR_LIMIT);
    *n = w->failed ? 0 : x;
}

/* Any bytes. */
static void put_bytes(wire *w, view *v, size_t max, const char *field) {
    size_t n = v->len;
    put_count(w, &n, max, field);
    if (w->failed) return;
    if (w->out) {
        if (n) str_append(w->out, v->data, n);
    } else if ((size_t)(w->end - w->at) < n) {
        fail(w, field, "is cut off", ERR_FORMAT);
    } else {
        *v = (view){ w->at, n };
        w->at += n;
    }
}

bool wire_is_utf8(view t) {
    for (size_t i = 0; i < t.len;) {
        uint64_t eight;
        if (t.len - i >= 8) {
            memcpy(&eight, t.data + i, 8);
            if (!(eight & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        if (!((unsigned char)t.data[i] & 0x80)) {
            i++;
            continue;
        }
        unsigned cp;
        size_t   n = utf8_decode(t.data + i, t.len - i, &cp);
        if (n == 0) return false;
        i += n;
    }
    return true;
}

static void put_text(wire *w, view *v, size_t max, const char *field) {
    put_bytes(w, v, max, field);
    if (!w->failed && !wire_is_utf8(*v)) fail(w, field, "is not UTF-8", ERR_ARG);
}

/* A terminated text; NULL stays NULL. */
static void put_cstr(wire *w, const char **v, size_t max, const char *field) {
    bool there = *v != NULL;
    view text = there ? view_of(*v) : (view){ "", 0 };
    put_bool(w, &there, field);
    if (!there) {
        if (!w->out) *v = NULL;
        return;
    }
    put_bytes(w, &text, max, field);
    if (w->out || w->failed) return;
    if (memchr(text.data, 0, text.len)) {
        fail(w, field, "contains a zero byte", ERR_FORMAT);
        return;
    }
    *v = arena_strndup(w->mem, text.data, text.len);
    if (!*v) fail(w, field, "", ERR_NOMEM);
}

/* Room for n items of which each takes at least `least` bytes of the frame. */
static void *room(wire *w, size_t n, size_t bytes, size_t least, const char *field) {
    if (w->failed) return NULL;
    if ((size_t)(w->end - w->at) / least < n) {
        fail(w, field, "is cut off", ERR_FORMAT);
        return NULL;
    }
    void *p = arena_calloc(w->mem, n + 1, bytes);
    if (!p) fail(w, field, "", ERR_NOMEM);
    return p;
}

static void put_ids(wire *w, const int32_t **ids, size_t *n, const char *field) {
    put_count(w, n, MAX_IDS, field);
    if (w->failed) return;
    if (w->out) {
        if (*n) str_append(w->out, *ids, *n * sizeof **ids);
        return;
    }
    int32_t *copy = room(w, *n, sizeof *copy, sizeof *copy, field);
    if (!copy) return;
    raw(w, copy, *n * sizeof *copy, field);
    *ids = copy;
}

static void put_views(wire *w, const view **list, size_t *n, const char *field) {
    put_count(w, n, MAX_LIST, field);
    view *copy = NULL;
    if (!w->out && !(copy = room(w, *n, sizeof *copy, 4, field))) return;
    for (size_t i = 0; i < *n && !w->failed; i++) {
        view v = w->out ? (*list)[i] : (view){ 0 };
        put_text(w, &v, WIRE_MAX_DOWN, field);
        if (copy) copy[i] = v;
    }
    if (copy) *list = copy;
}

/* --- requests --- */

static void walk_sampling(wire *w, sampling_params *p) {
    put_float(w, &p->temperature, "temperature");
    put_float(w, &p->dynatemp_range, "dynatemp_range");
    put_float(w, &p->dynatemp_exponent, "dynatemp_exponent");
    put_int(w, &p->top_k, INT_MIN, INT_MAX, "top_k");
    put_float(w, &p->top_p, "top_p");
    put_float(w, &p->min_p, "min_p");
    put_float(w, &p->typical_p, "typical_p");
    put_float(w, &p->top_n_sigma, "top_n_sigma");
    put_float(w, &p->xtc_probability, "xtc_probability");
    put_float(w, &p->xtc_threshold, "xtc_threshold");
    put_int(w, &p->repeat_last_n, INT_MIN, INT_MAX, "repeat_last_n");
    put_float(w, &p->repeat_penalty, "repeat_penalty");
    put_float(w, &p->frequency_penalty, "frequency_penalty");
    put_float(w, &p->presence_penalty, "presence_penalty");
    put_float(w, &p->dry_multiplier, "dry_multiplier");
    put_float(w, &p->dry_base, "dry_base");
    put_int(w, &p->dry_allowed_length, INT_MIN, INT_MAX, "dry_allowed_length");
    put_int(w, &p->dry_last_n, INT_MIN, INT_MAX, "dry_last_n");
    put_int(w, &p->mirostat, INT_MIN, INT_MAX, "mirostat");
    put_float(w, &p->mirostat_tau, "mirostat_tau");
    put_float(w, &p->mirostat_eta, "mirostat_eta");
    put_u64(w, &p->seed, "seed");
    put_count(w, &p->n_bias, MAX_IDS, "logit_bias");
    sampling_bias *bias = NULL;
    if (!w->out && !(bias = room(w, p->n_bias, sizeof *bias, 8, "logit_bias"))) return;
    for (size_t i = 0; i < p->n_bias && !w->failed; i++) {
        sampling_bias b = w->out ? p->bias[i] : (sampling_bias){ 0 };
        raw(w, &b.token, sizeof b.token, "logit_bias");
        put_float(w, &b.bias, "logit_bias");
        if (bias) bias[i] = b;
    }
    if (bias) p->bias = bias;
    put_ids(w, &p->dry_breakers, &p->n_dry_breakers, "dry_breakers");
    put_int(w, &p->n_order, 0, SAMPLING_STAGE_COUNT, "samplers");
    for (int i = 0; i < p->n_order && !w->failed; i++) PUT_ENUM(w, p->order[i], SAMPLING_STAGE_COUNT, "samplers");
}

static void walk_request(wire *w, runtime_request *q) {
    PUT_ENUM(w, q->task, RUNTIME_RERANK + 1, "task");
    put_text(w, &q->messages, WIRE_MAX_DOWN, "messages");
    put_text(w, &q->tools, WIRE_MAX_DOWN, "tools");
    put_text(w, &q->template_vars, WIRE_MAX_DOWN, "template variables");
    put_text(w, &q->template_text, WIRE_MAX_DOWN, "template");
    put_bool(w, &q->continue_final, "continue_final");
    put_text(w, &q->text, WIRE_MAX_DOWN, "text");
    put_text(w, &q->suffix, WIRE_MAX_DOWN, "suffix");
    put_ids(w, &q->tokens, &q->n_tokens, "tokens");
    put_bool(w, &q->echo, "echo");
    PUT_ENUM(w, q->tool_choice, RUNTIME_TOOLS_NAMED + 1, "tool_choice");
    put_text(w, &q->tool_name, WIRE_MAX_DOWN, "tool name");
    put_bool(w, &q->parallel_tools, "parallel_tools");
    put_bool(w, &q->stream_calls, "stream_calls");
    PUT_ENUM(w, q->thinking, RUNTIME_THINK_OFF + 1, "thinking");
    put_text(w, &q->effort, WIRE_MAX_DOWN, "effort");
    put_int(w, &q->thinking_budget, INT_MIN, INT_MAX, "thinking budget");
    put_bool(w, &q->raw_answer, "raw_answer");
    PUT_ENUM(w, q->constraint.kind, RUNTIME_CHOICES + 1, "constraint");
    put_text(w, &q->constraint.text, WIRE_MAX_DOWN, "constraint");
    walk_sampling(w, &q->sampling);
    int set = (int)q->sampling_set;
    put_int(w, &set, 0, RUNTIME_SET_ALL | RUNTIME_SET_DYNATEMP, "sampling_set");
    q->sampling_set = (unsigned)set;
    put_views(w, &q->dry_breakers, &q->n_dry_breakers, "dry breakers");
    put_int(w, &q->max_tokens, INT_MIN, INT_MAX, "max_tokens");
    put_int(w, &q->min_tokens, INT_MIN, INT_MAX, "min_tokens");
    put_int(w, &q->n_ctx, INT_MIN, INT_MAX, "n_ctx");
    put_bool(w, &q->truncate, "truncate");
    put_bool(w, &q->want_context, "want_context");
    put_bool(w, &q->ignore_eos, "ignore_eos");
    put_views(w, &q->stop, &q->n_stop, "stop");
    put_int(w, &q->n_choices, 0, MAX_CHOICES, "n");
    put_int(w, &q->priority, INT_MIN, INT_MAX, "priority");
    put_u64(w, &q->client, "client");
    put_bool(w, &q->want_logprob, "logprobs");
    put_int(w, &q->n_top, 0, MAX_TOP, "top_logprobs");
    put_bool(w, &q->no_cache, "no_cache");
    put_bool(w, &q->want_progress, "want_progress");
    PUT_ENUM(w, q->pooling, RUNTIME_POOL_LAST + 1, "pooling");
    put_int(w, &q->dimensions, INT_MIN, INT_MAX, "dimensions");
}

int wire_put_request(str *out, wire_type type, uint64_t id, const runtime_request *q, err *e) {
    size_t          begin;
    wire            w = begin_frame(out, &begin);
    runtime_request copy = *q; /* the walk does not write into what it points at */
    walk_request(&w, &copy);
    return end_frame(&w, begin, type, id, e);
}

int wire_get_request(view body, arena *mem, runtime_request *q, err *e) {
    wire w = begin_body(body, mem);
    walk_request(&w, q);
    return end_body(&w, e);
}

/* --- opening --- */

static void walk_engine(wire *w, engine_options *o) {
    put_int(w, &o->n_ctx, 0, INT_MAX, "n_ctx");
    put_size(w, &o->cache_bytes, "cache_bytes");
    put_int(w, &o->page_tokens, 0, INT_MAX, "page_tokens");
    put_int(w, &o->max_seqs, 0, INT_MAX, "max_seqs");
    put_int(w, &o->step_tokens, 0, INT_MAX, "step_tokens");
    put_int(w, &o->max_waiting, 0, INT_MAX, "max_waiting");
    put_int(w, &o->target_step_ms, 0, INT_MAX, "target_step_ms");
    put_int(w, &o->n_threads, 0, INT_MAX, "n_threads");
    PUT_ENUM(w, o->k_type, NN_KV_TYPE_COUNT, "k_type");
    PUT_ENUM(w, o->v_type, NN_KV_TYPE_COUNT, "v_type");
    uint64_t cpu = o->cpu;
    put_u64(w, &cpu, "cpu");
    if (cpu > UINT_MAX) fail(w, "cpu", "lies outside its range", ERR_FORMAT);
    o->cpu = (unsigned)cpu;
    put_bool(w, &o->no_prefix_cache, "no_prefix_cache");
    put_size(w, &o->host_cache_bytes, "host_cache_bytes");
    put_cstr(w, &o->disk_cache_dir, MAX_SHORT, "disk_cache_dir");
    put_u64(w, &o->disk_cache_bytes, "disk_cache_bytes");
    put_cstr(w, &o->device, MAX_SHORT, "device");
}

static void walk_settings(wire *w, runtime_settings *s) {
    put_cstr(w, &s->system, WIRE_MAX_DOWN, "system");
    put_cstr(w, &s->messages, WIRE_MAX_DOWN, "messages");
    put_cstr(w, &s->template_text, WIRE_MAX_DOWN, "template");
    s->sampling.bias = NULL;
    s->sampling.dry_breakers = NULL;
    s->sampling.n_bias = s->sampling.n_dry_breakers = 0;
    walk_sampling(w, &s->sampling);
    int set = (int)s->sampling_set;
    put_int(w, &set, 0, RUNTIME_SET_ALL | RUNTIME_SET_DYNATEMP, "sampling_set");
    s->sampling_set = (unsigned)set;
    put_count(w, &s->n_stop, MAX_LIST, "stop");
    const char **stop = NULL;
    if (!w->out && !(stop = room(w, s->n_stop, sizeof *stop, 1, "stop"))) return;
    for (size_t i = 0; i < s->n_stop && !w->failed; i++) {
        const char *one = w->out ? s->stop[i] : NULL;
        put_cstr(w, &one, WIRE_MAX_DOWN, "stop");
        if (!w->failed && !one) fail(w, "stop", "is missing", ERR_ARG);
        if (stop) stop[i] = one;
    }
    if (stop) s->stop = stop;
    put_int(w, &s->max_tokens, INT_MIN, INT_MAX, "max_tokens");
    put_int(w, &s->min_tokens, INT_MIN, INT_MAX, "min_tokens");
    put_int(w, &s->n_ctx, 0, INT_MAX, "n_ctx");
    put_cstr(w, &s->rope_type, MAX_SHORT, "rope_type");
    put_double(w, &s->rope_factor, "rope_factor");
    put_int(w, &s->rope_original_context, 0, INT_MAX, "rope_original_context");
}

static void walk_open(wire *w, wire_open *o) {
    put_cstr(w, &o->runtime.path, MAX_SHORT, "path");
    put_cstr(w, &o->runtime.template_text, WIRE_MAX_DOWN, "template");
    walk_engine(w, &o->runtime.engine);
    walk_settings(w, &o->runtime.settings);
    put_int(w, &o->runtime.max_preparing, 0, INT_MAX, "max_preparing");
    put_size(w, &o->runtime.grammar_bytes, "grammar_bytes");
    put_u64(w, &o->runtime.spare_bytes, "spare_bytes");
    put_cstr(w, &o->name, MAX_SHORT, "name");
    put_cstr(w, &o->fault, MAX_SHORT, "fault");
    put_bool(w, &o->no_sandbox, "no_sandbox");
    put_int(w, &o->log_level, LOG_DEBUG, LOG_OFF, "log level");
    put_size(w, &o->queue_bytes, "queue_bytes");
    if (!w->failed && (!o->runtime.path || !o->name || !o->fault)) fail(w, "path", "is missing", ERR_ARG);
}

int wire_put_open(str *out, const wire_open *o, err *e) {
    size_t    begin;
    wire      w = begin_frame(out, &begin);
    wire_open copy = *o;
    walk_open(&w, &copy);
    return end_frame(&w, begin, WIRE_OPEN, 0, e);
}

int wire_get_open(view body, arena *mem, wire_open *o, err *e) {
    wire w = begin_body(body, mem);
    *o = (wire_open){ 0 };
    walk_open(&w, o);
    return end_body(&w, e);
}

static void walk_info(wire *w, runtime_info *i) {
    put_cstr(w, &i->path, MAX_SHORT, "path");
    put_cstr(w, &i->name, WIRE_MAX_UP, "name");
    put_cstr(w, &i->family, WIRE_MAX_UP, "family");
    put_cstr(w, &i->format, MAX_SHORT, "format");
    put_cstr(w, &i->quant, MAX_SHORT, "quant");
    put_u64(w, &i->n_params, "n_params");
    put_u64(w, &i->file_bytes, "file_bytes");
    put_int(w, &i->n_ctx, 0, INT_MAX, "n_ctx");
    put_int(w, &i->n_ctx_train, 0, INT_MAX, "n_ctx_train");
    put_int(w, &i->n_layer, 0, INT_MAX, "n_layer");
    put_int(w, &i->n_embd, 0, INT_MAX, "n_embd");
    put_i64(w, &i->n_vocab, 0, INT32_MAX, "n_vocab");
    put_bool(w, &i->can_chat, "can_chat");
    put_bool(w, &i->can_tools, "can_tools");
    put_bool(w, &i->can_think, "can_think");
    put_bool(w, &i->can_embed, "can_embed");
    put_bool(w, &i->can_infill, "can_infill");
    put_cstr(w, &i->template_text, WIRE_MAX_UP, "template");
    put_cstr(w, &i->template_origin, MAX_SHORT, "template origin");
}

int wire_put_ready(str *out, const runtime_info *i, err *e) {
    size_t       begin;
    wire         w = begin_frame(out, &begin);
    runtime_info copy = *i;
    walk_info(&w, &copy);
    return end_frame(&w, begin, WIRE_READY, 0, e);
}

int wire_get_ready(view body, arena *mem, runtime_info *i, err *e) {
    wire w = begin_body(body, mem);
    *i = (runtime_info){ 0 };
    walk_info(&w, i);
    return end_body(&w, e);
}

/* --- events --- */

static void walk_err(wire *w, err *x) {
    put_int(w, &x->code, -64, 0, "code");
    view text = { x->msg, w->out ? strnlen(x->msg, sizeof x->msg) : 0 };
    put_bytes(w, &text, sizeof x->msg - 1, "message");
    if (w->out || w->failed) return;
    memcpy(x->msg, text.data, text.len);
    x->msg[text.len] = '\0';
}

static void walk_usage(wire *w, runtime_usage *u) {
    put_int(w, &u->prompt_tokens, 0, INT_MAX, "usage");
    put_int(w, &u->cached_tokens, 0, INT_MAX, "usage");
    put_int(w, &u->generated_tokens, 0, INT_MAX, "usage");
    put_int(w, &u->reasoning_tokens, 0, INT_MAX, "usage");
    put_double(w, &u->prepare_s, "usage");
    put_double(w, &u->queued_s, "usage");
    put_double(w, &u->prompt_s, "usage");
    put_double(w, &u->generate_s, "usage");
}

static void walk_token(wire *w, runtime_event *ev) {
    raw(w, &ev->token, sizeof ev->token, "token");
    put_float(w, &ev->logprob, "logprob");
    put_bytes(w, &ev->bytes, MAX_TOP_BYTES, "bytes");
    put_int(w, &ev->n_top, 0, MAX_TOP, "top");
    runtime_top *top = NULL;
    if (w->failed || (!w->out && !(top = room(w, (size_t)ev->n_top, sizeof *top, 12, "top")))) return;
    for (int i = 0; i < ev->n_top && !w->failed; i++) {
        runtime_top t = w->out ? ev->top[i] : (runtime_top){ 0 };
        raw(w, &t.token, sizeof t.token, "top");
        put_float(w, &t.logprob, "top");
        put_bytes(w, &t.bytes, MAX_TOP_BYTES, "top");
        if (top) top[i] = t;
    }
    if (top) ev->top = top;
}

static void walk_vector(wire *w, runtime_event *ev) {
    put_int(w, &ev->n_vector, 0, MAX_VECTOR, "vector");
    if (w->failed) return;
    size_t n = (size_t)ev->n_vector;
    if (w->out) {
        if (n) str_append(w->out, ev->vector, n * sizeof(float));
        return;
    }
    float *copy = room(w, n, sizeof *copy, sizeof *copy, "vector");
    if (!copy) return;
    raw(w, copy, n * sizeof *copy, "vector");
    ev->vector = copy;
}

/* Only what its kind has: most events are a few bytes of text. */
static void walk_event(wire *w, runtime_event *ev, err *error) {
    PUT_ENUM(w, ev->kind, RUNTIME_ERROR + 1, "kind");
    put_int(w, &ev->choice, -1, MAX_CHOICES - 1, "choice");
    put_bool(w, &ev->last, "last");
    if (w->failed) return;
    switch (ev->kind) {
    case RUNTIME_STARTED: put_int(w, &ev->prompt_tokens, 0, INT_MAX, "prompt_tokens"); break;
    case RUNTIME_PROGRESS:
        put_int(w, &ev->done, 0, INT_MAX, "done");
        put_int(w, &ev->total, 0, INT_MAX, "total");
        put_int(w, &ev->cached, 0, INT_MAX, "cached");
        break;
    case RUNTIME_TOKEN: walk_token(w, ev); break;
    case RUNTIME_CONTENT:
    case RUNTIME_REASONING: put_text(w, &ev->text, WIRE_MAX_UP, "text"); break;
    case RUNTIME_TOOL_BEGIN:
        put_int(w, &ev->index, 0, INT_MAX, "index");
        put_text(w, &ev->id, WIRE_MAX_UP, "id");
        put_text(w, &ev->name, WIRE_MAX_UP, "name");
        break;
    case RUNTIME_TOOL_ARGUMENTS:
        put_int(w, &ev->index, 0, INT_MAX, "index");
        put_text(w, &ev->text, WIRE_MAX_UP, "text");
        break;
    case RUNTIME_TOOL_END: put_int(w, &ev->index, 0, INT_MAX, "index"); break;
    case RUNTIME_EMBEDDING: walk_vector(w, ev); break;
    case RUNTIME_SCORE: put_float(w, &ev->score, "score"); break;
    case RUNTIME_DONE:
        PUT_ENUM(w, ev->finish, RUNTIME_CANCELLED + 1, "finish");
        put_int(w, &ev->stop_index, INT_MIN, INT_MAX, "stop_index");
        walk_usage(w, &ev->usage);
        put_ids(w, &ev->context, &ev->n_context, "context");
        break;
    case RUNTIME_ERROR: walk_err(w, error); break;
    }
    if (ev->last && ev->kind != RUNTIME_DONE && ev->kind != RUNTIME_ERROR)
        fail(w, "last", "is set in the middle", ERR_FORMAT);
}

int wire_put_event(str *out, uint64_t id, const runtime_event *ev, err *e) {
    size_t        begin;
    wire          w = begin_frame(out, &begin);
    runtime_event copy = *ev;
    err           error = { 0 };
    if (ev->error) error = *ev->error;
    walk_event(&w, &copy, &error);
    return end_frame(&w, begin, WIRE_EVENT, id, e);
}

int wire_get_event(view body, arena *mem, runtime_event *ev, err *e) {
    wire w = begin_body(body, mem);
    *ev = (runtime_event){ 0 };
    err *error = NULL;
    /* An error is rare and large: no room for it before the kind is known. */
    int kind = 0;
    if (body.len >= 4) memcpy(&kind, body.data, 4);
    if (kind == RUNTIME_ERROR && !(error = arena_calloc(mem, 1, sizeof *error))) return err_set_nomem(e);
    walk_event(&w, ev, error);
    ev->error = error;
    return end_body(&w, e);
}

/* --- calls --- */

static void walk_text_call(wire *w, wire_text_call *c) {
    put_text(w, &c->text, WIRE_MAX_DOWN, "text");
    put_bool(w, &c->add_special, "add_special");
    put_bool(w, &c->parse_special, "parse_special");
}

static void walk_ids_call(wire *w, wire_ids_call *c) {
    put_ids(w, &c->ids, &c->n, "tokens");
    put_bool(w, &c->keep_special, "keep_special");
}

static void walk_result(wire *w, wire_result *r) {
    walk_err(w, &r->error);
    put_bytes(w, &r->text, WIRE_MAX_UP, "text");
    put_ids(w, &r->ids, &r->n_ids, "tokens");
    put_u64(w, &r->count, "count");
}

int wire_put_text_call(str *out, uint64_t id, const wire_text_call *c, err *e) {
    size_t         begin;
    wire           w = begin_frame(out, &begin);
    wire_text_call copy = *c;
    walk_text_call(&w, &copy);
    return end_frame(&w, begin, WIRE_TOKENIZE, id, e);
}

int wire_get_text_call(view body, wire_text_call *c, err *e) {
    wire w = begin_body(body, NULL);
    *c = (wire_text_call){ 0 };
    walk_text_call(&w, c);
    return end_body(&w, e);
}

int wire_put_ids_call(str *out, uint64_t id, const wire_ids_call *c, err *e) {
    size_t        begin;
    wire          w = begin_frame(out, &begin);
    wire_ids_call copy = *c;
    walk_ids_call(&w, &copy);
    return end_frame(&w, begin, WIRE_DETOKENIZE, id, e);
}

int wire_get_ids_call(view body, arena *mem, wire_ids_call *c, err *e) {
    wire w = begin_body(body, mem);
    *c = (wire_ids_call){ 0 };
    walk_ids_call(&w, c);
    return end_body(&w, e);
}

int wire_put_result(str *out, uint64_t id, const wire_result *r, err *e) {
    size_t      begin;
    wire        w = begin_frame(out, &begin);
    wire_result copy = *r;
    walk_result(&w, &copy);
    return end_frame(&w, begin, WIRE_RESULT, id, e);
}

int wire_get_result(view body, arena *mem, wire_result *r, err *e) {
    wire w = begin_body(body, mem);
    *r = (wire_result){ 0 };
    walk_result(&w, r);
    return end_body(&w, e);
}

/* --- small ones --- */

int wire_put_empty(str *out, wire_type type, uint64_t id, err *e) {
    size_t begin;
    wire   w = begin_frame(out, &begin);
    return end_frame(&w, begin, type, id, e);
}

int wire_put_ping(str *out, uint64_t id, int level, err *e) {
    size_t begin;
    wire   w = begin_frame(out, &begin);
    put_int(&w, &level, LOG_DEBUG, LOG_OFF, "log level");
    return end_frame(&w, begin, WIRE_PING, id, e);
}

int wire_get_ping(view body, int *level, err *e) {
    wire w = begin_body(body, NULL);
    *level = 0;
    put_int(&w, level, LOG_DEBUG, LOG_OFF, "log level");
    return end_body(&w, e);
}

static void walk_need(wire *w, need *n) {
    put_int(w, &n->n_ctx, 0, INT_MAX, "n_ctx");
    put_int(w, &n->n_ctx_train, 0, INT_MAX, "n_ctx_train");
    put_int(w, &n->n_sequences, 0, INT_MAX, "n_sequences");
    put_u64(w, &n->weights_bytes, "weights");
    put_u64(w, &n->cache_bytes_per_1k, "cache");
    put_u64(w, &n->sequence_bytes, "cache");
    put_u64(w, &n->cache_bytes, "cache");
    put_u64(w, &n->scratch_bytes, "scratch");
    put_u64(w, &n->other_bytes, "other");
    put_u64(w, &n->total_bytes, "total");
    put_u64(w, &n->token_bytes, "token");
    put_u64(w, &n->token_products, "token");
}

int wire_put_need(str *out, const need *n, err *e) {
    size_t begin;
    wire   w = begin_frame(out, &begin);
    need   copy = *n;
    walk_need(&w, &copy);
    return end_frame(&w, begin, WIRE_NEED, 0, e);
}

int wire_get_need(view body, need *n, err *e) {
    wire w = begin_body(body, NULL);
    *n = (need){ 0 };
    walk_need(&w, n);
    return end_body(&w, e);
}

static void walk_fraction(wire *w, float *f) {
    put_float(w, f, "fraction");
    if (!w->failed && !(*f >= 0 && *f <= 1)) fail(w, "fraction", "lies outside its range", ERR_ARG);
}

int wire_put_loading(str *out, float fraction, err *e) {
    size_t begin;
    wire   w = begin_frame(out, &begin);
    walk_fraction(&w, &fraction);
    return end_frame(&w, begin, WIRE_LOADING, 0, e);
}

int wire_get_loading(view body, float *fraction, err *e) {
    wire w = begin_body(body, NULL);
    *fraction = 0;
    walk_fraction(&w, fraction);
    return end_body(&w, e);
}

int wire_put_failed(str *out, const err *why, err *e) {
    size_t begin;
    wire   w = begin_frame(out, &begin);
    err    copy = *why;
    walk_err(&w, &copy);
    return end_frame(&w, begin, WIRE_FAILED, 0, e);
}

int wire_get_failed(view body, err *why, err *e) {
    wire w = begin_body(body, NULL);
    *why = (err){ 0 };
    walk_err(&w, why);
    return end_body(&w, e);
}

static void walk_pong(wire *w, wire_pong *p) {
    engine_stats  *g = &p->stats.engine;
    runtime_stats *s = &p->stats;
    uint64_t      *wide[] = {
             &p->stamp,       &g->steps,       &g->tokens_evaluated, &g->tokens_cached, &g->tokens_generated,
             &g->preemptions, &g->guide_masks, &g->disk_bytes,       &g->to_host,       &g->from_host,
             &g->from_disk,   &g->to_disk,     &g->not_written,      &g->evictions,     &s->requests,
             &s->errors,      &s->cancelled,   &s->grammar_hits,     &s->grammar_misses
    };
    int    *narrow[] = { &g->running,      &g->waiting,      &g->paused,    &g->pages_total,
                         &g->pages_unused, &g->pages_cached, &s->preparing, &s->grammars };
    size_t *sizes[] = { &g->states, &g->state_bytes, &g->host_pages, &g->host_bytes, &g->disk_entries };
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) put_u64(w, wide[i], "statistics");
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) put_int(w, narrow[i], 0, INT_MAX, "statistics");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) put_size(w, sizes[i], "statistics");
    put_double(w, &g->guide_s, "statistics");
    put_double(w, &g->guide_wait_s, "statistics");
}

int wire_put_pong(str *out, uint64_t id, const wire_pong *p, err *e) {
    size_t    begin;
    wire      w = begin_frame(out, &begin);
    wire_pong copy = *p;
    walk_pong(&w, &copy);
    return end_frame(&w, begin, WIRE_PONG, id, e);
}

int wire_get_pong(view body, wire_pong *p, err *e) {
    wire w = begin_body(body, NULL);
    *p = (wire_pong){ 0 };
    walk_pong(&w, p);
    return end_body(&w, e);
}
