/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a model, facts about it, and what works without the engine. */
#include "runtime/runtime.h"

#include "base/clock.h"
#include "base/log.h"
#include "formats/summary.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/divide.h"
#include "runtime/internal.h"
#include "runtime/need.h"

#include <stdlib.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

enum { LOOKING = 64 }; /* requests whose pictures or sounds wait */

static int cache_type(const char *name, nn_kv_type *out, err *e) {
    return nn_kv_type_parse(name, out) ? 0 : err_set(e, ERR_ARG, "'%s' is not a page type", name);
}

int runtime_cache_types(const char *both, const char *k, const char *v, engine_options *o, err *e) {
    int rc;
    if (!both) both = "f16";
    o->kv_auto = strcasecmp(both, "auto") == 0;
    o->k_open = k == NULL;
    if (o->kv_auto && (k || v)) return err_set(e, ERR_ARG, "'auto' chooses the page types of keys and values together");
    if (o->kv_auto) both = "f16";
    if ((rc = cache_type(k ? k : both, &o->k_type, e)) < 0) return rc;
    return cache_type(v ? v : both, &o->v_type, e);
}

int runtime_settings_pages(const runtime_settings *s, engine_options *o, err *e) {
    if (!s->page_type && !s->page_type_k && !s->page_type_v) return 0;
    o->precise_layers = s->precise_layers;
    int rc = runtime_cache_types(s->page_type, s->page_type_k, s->page_type_v, o, e);
    return rc < 0 ? err_wrap(e, rc, "kv_cache") : 0;
}

static const char *keep_text(arena *a, view v) { return arena_strndup(a, v.len ? v.data : "", v.len); }

static int describe(runtime *r, err *e) {
    model_summary *s = calloc(1, sizeof *s);
    runtime_info  *i = &r->info;
    if (!s) return err_set_nomem(e);
    model_summary_read(s, r->file);
    const nn_dims *d = r->model->dims;
    *i = (runtime_info){ .path = arena_strdup(&r->mem, model_file_path(r->file)),
                         .name = keep_text(&r->mem, s->name),
                         .family = keep_text(&r->mem, s->arch),
                         .format = s->format,
                         .quant = arena_strdup(&r->mem, s->level),
                         .n_params = s->parameters,
                         .file_bytes = s->file_bytes,
                         .n_ctx = engine_context(r->engine),
                         .n_ctx_train = d->context,
                         .n_seqs = engine_sequences(r->engine),
                         .n_layer = d->n_layer,
                         .n_embd = (int)d->n_embd,
                         .n_vocab = d->n_vocab,
                         .template_text = chat_template_text(r->chat),
                         .template_origin = chat_template_origin(r->chat),
                         .drafters = i->drafters };
    i->can_generate = engine_generates(r->engine);
    i->can_chat = i->can_generate && i->template_origin != NULL;
    const chat_format *f = chat_answer_format(r->chat);
    i->can_tools = i->can_chat && (f->generic || (chat_uses(r->chat, "tools") && f->syntax != CHAT_SYNTAX_NONE));
    i->can_think = chat_can_think(r->chat);
    i->can_embed = !r->dictation.known;
    i->can_see = i->can_chat && r->eyes;
    i->can_hear = (i->can_chat || r->dictation.known) && r->ears;
    i->n_vector = r->embed.size;
    i->can_rerank = r->rank_form || classify_scores(r);
    i->can_infill = i->can_generate && infill_known(chat_tokenizer(r->chat));
    model_summary_deinit(s);
    free(s);
    return i->path && i->name && i->family && i->quant ? 0 : err_set_nomem(e);
}

static void progress(const runtime_options *o, float fraction) {
    if (o->on_progress) o->on_progress(o->progress_ctx, fraction);
}

/* Whether experts are streamed, where nobody measured before. */
static int choose_experts(const runtime *r, const runtime_options *o, engine_options *g, err *e) {
    need n;
    int  rc = 0;
    if (nn_mixtures(r->model->tape) == 0) g->expert_bytes = 0;
    if (nn_mixtures(r->model->tape) == 0 || !g->experts_auto || g->expert_bytes || !g->memory_room) return 0;
    if ((rc = need_of_settings(&n, o->path, &o->settings, &o->engine, e)) < 0) return rc;
    g->expert_bytes = n.experts.bytes;
    if (n.experts.bytes)
        log_info("runtime", "%d of %d experts have room in memory, the others are read from the file", n.experts.slots,
                 n.experts.count);
    return 0;
}

/* The parts by the time they take with a large vocabulary. */
static int open_parts(runtime *r, const runtime_options *o, err *e) {
    int            rc;
    engine_options g = o->engine;
    const char    *text = o->template_text ? o->template_text : o->settings.template_text;
    if (o->settings.n_ctx > 0) g.n_ctx = o->settings.n_ctx;
    nn_model_options m = { .rope_context = g.n_ctx,
                           .rope_type = o->settings.rope_type,
                           .rope_factor = o->settings.rope_factor,
                           .rope_original_context = o->settings.rope_original_context };
    if (g.cpu == 0) g.cpu = cpu_detect();
    if ((rc = runtime_settings_pages(&o->settings, &g, e)) < 0) return rc;
    if ((rc = model_file_open(&r->file, o->path, e)) < 0) return rc;
    if (!g.cache_room) g.cache_room = need_cache_room(r->file, g.device);
    if ((rc = nn_model_open(&r->model, r->file, models_list, &m, e)) < 0) return rc;
    if ((rc = choose_experts(r, o, &g, e)) < 0) return rc;
    progress(o, 0.2f);
    if ((rc = chat_open(&r->chat, o->path, text, e)) < 0) return rc;
    progress(o, 0.8f);
    if ((rc = pictures_open(r, &o->settings, &g, e)) < 0) return rc;
    if ((rc = need_suits(g.device, r->model, r->eyes != NULL, o->settings.n_lora > 0, e)) < 0) return rc;
    g.span_tokens = pictures_span_tokens(r);
    if ((rc = draft_open(r, &o->settings, &g, e)) < 0) return rc;
    r->info.drafters = runtime_drafters(g.speculate, g.draft_model != NULL, g.next != NULL);
    if ((rc = engine_open(&r->engine, r->model, chat_tokenizer(r->chat), &g, e)) < 0) return rc;
    if ((rc = adapters_open(&r->adapters, r->model, o, e)) < 0) return rc;
    if ((rc = dictation_open(r, e)) < 0) return rc;
    defaults_sampling(&r->sampling, r->file);
    if (r->dictation.known) r->sampling.temperature = 0;
    if ((rc = defaults_muted(r, e)) < 0) return rc;
    if ((rc = settings_open(r, &o->settings, e)) < 0) return rc;
    if ((rc = embedding_open(r, e)) < 0 || (rc = classify_open(r, e)) < 0 || (rc = rerank_open(r, e)) < 0)
        return err_wrap(e, rc, "%s", o->path);
    if ((rc = answer_markers(r->chat, &r->markers, e)) < 0) return rc;
    progress(o, 1);
    return describe(r, e);
}

/* Beside the engine, and only with what it leaves of the cores. */
static void *settle_main(void *arg) {
    runtime *r = arg;
    (void)setpriority(PRIO_PROCESS, 0, 19); /* 0: this thread */
    (void)model_file_settle(r->file, &r->settle_stop);
    return NULL;
}

static int open_once(runtime **out, const runtime_options *o, err *e) {
    int rc;
    *out = NULL;
    runtime *r = calloc(1, sizeof *r);
    if (!r) return err_set_nomem(e);
    arena_init(&r->mem, 0);
    pthread_mutex_init(&r->lock, NULL);
    if (getrandom(&r->id_seed, sizeof r->id_seed, 0) < 0) r->id_seed = (uint64_t)time(NULL);
    r->kept_limit = o->grammar_bytes ? o->grammar_bytes : (size_t)256 << 20;
    if ((rc = open_parts(r, o, e)) < 0) goto fail;
    if ((rc = queue_open(&r->incoming, o->max_preparing > 0 ? (size_t)o->max_preparing : 256, e)) < 0) goto fail;
    if (pthread_create(&r->thread, NULL, prepare_main, r) != 0) {
        rc = err_set(e, ERR_NOMEM, "cannot start the preparation thread");
        goto fail;
    }
    r->started = true;
    if (r->eyes || r->ears) {
        if ((rc = queue_open(&r->looking, LOOKING, e)) < 0) goto fail;
        if (pthread_create(&r->looker, NULL, pictures_main, r) != 0) {
            rc = err_set(e, ERR_NOMEM, "cannot start the thread that computes pictures and sounds");
            goto fail;
        }
        r->looks = true;
    }
    engine_stats now;
    engine_stat(r->engine, &now);
    if (!now.experts.slots && o->spare_bytes / 2 > model_file_bytes(r->file))
        r->settling = pthread_create(&r->settler, NULL, settle_main, r) == 0; /* without it all is well, too */
    *out = r;
    return 0;
fail:
    runtime_free(r);
    return rc;
}

/* A GPU that nobody named had no room: as much of the model there as fits, then less and less. */
static int open_divided(runtime **out, const runtime_options *o, err *e) {
    runtime_options other = *o;
    need            n;
    int             rc = need_of_settings(&n, o->path, &o->settings, &o->engine, NULL);
    bool            more = rc == 0 && (strpbrk(n.device, "/+") || need_smaller(&n, n.device));
    other.engine.device = n.device;
    other.engine.cache_room = 0;
    for (rc = ERR_NOMEM; more && rc == ERR_NOMEM; more = need_smaller(&n, n.device)) {
        rc = open_once(out, &other, e);
        if (rc == 0)
            log_warn("runtime", "the GPU is too small for the whole model, or others use its memory; it is on %s",
                     n.device);
    }
    return rc;
}

int runtime_open(runtime **out, const runtime_options *o, err *e) {
    err why = { 0 };
    int rc = open_once(out, o, &why);
    if (rc < 0 && need_may_leave(o->engine.device, rc)) {
        runtime_options other = *o;
        err             first = why;
        other.engine.device = DEVICE_CPU;
        if (rc == ERR_NOMEM && open_divided(out, o, &why) == 0) return 0;
        if ((rc = open_once(out, &other, &why)) == 0)
            log_warn("runtime", "%s; the model computes on the CPU", first.msg);
        else
            why = first;
    }
    if (rc < 0 && e) *e = why;
    return rc;
}

void runtime_free(runtime *r) {
    if (!r) return;
    atomic_store(&r->settle_stop, true);
    if (r->settling) pthread_join(r->settler, NULL);
    if (r->started) {
        pthread_mutex_lock(&r->lock);
        r->closing = true;
        pthread_mutex_unlock(&r->lock);
        if (r->looks) {
            queue_close(r->looking);
            pthread_join(r->looker, NULL);
        }
        queue_close(r->incoming);
        pthread_join(r->thread, NULL);
    }
    engine_free(r->engine); /* the last events come in here */
    queue_free(r->incoming);
    queue_free(r->looking);
    pictures_close(r);
    guides_close(r);
    adapters_free(r->adapters);
    chat_free(r->chat);
    draft_files_close(&r->drafts);
    nn_model_free(r->model);
    model_file_free(r->file);
    tok_ids_deinit(&r->markers);
    runtime_settings_free(r->settings);
    arena_deinit(&r->mem);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

char *runtime_find_mmproj(const char *path) { return pictures_find_mmproj(path); }

void runtime_describe(const runtime *r, runtime_info *out) { *out = r->info; }

int runtime_tokenize(const runtime *r, view text, bool add_special, bool parse_special, tok_ids *out, err *e) {
    unsigned flags = (add_special ? TOK_ADD_SPECIAL : 0u) | (parse_special ? TOK_PARSE_SPECIAL : 0u);
    return tok_encode(chat_tokenizer(r->chat), text.len ? text.data : "", text.len, flags, out, e);
}

int runtime_detokenize(const runtime *r, const int32_t *tokens, size_t n, bool keep_special, str *out, err *e) {
    return tok_decode(chat_tokenizer(r->chat), tokens, n, !keep_special, out, e);
}

/* Outside of a request's life. */
static int make_prompt(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    trees  t;
    arena  a;
    wishes w = r->wishes;
    arena_init(&a, 0);
    int rc = trees_parse(q, &a, &a, &t, e);
    if (rc == 0 && q->settings) rc = settings_read(r, q->settings, &a, &w, e);
    if (rc == 0) rc = prompt_make(r, &w, q, &t, out, e);
    arena_deinit(&a);
    return rc;
}

int runtime_render(const runtime *r, const runtime_request *q, str *out, err *e) {
    prompt p;
    prompt_init(&p);
    int rc = make_prompt(r, q, &p, e);
    if (rc == 0) {
        str_append(out, str_cstr(&p.text), p.text.len);
        rc = str_ok(out) ? 0 : err_set_nomem(e);
    }
    prompt_deinit(&p);
    return rc;
}

int runtime_count(const runtime *r, const runtime_request *q, size_t *out, err *e) {
    prompt p;
    prompt_init(&p);
    int rc = make_prompt(r, q, &p, e);
    *out = p.ids.count;
    prompt_deinit(&p);
    return rc;
}

void runtime_stat(runtime *r, runtime_stats *out) {
    engine_stats   g;
    adapters_stats a;
    engine_stat(r->engine, &g);
    adapters_stat(r->adapters, &a);
    pthread_mutex_lock(&r->lock);
    *out = r->stats;
    out->engine = g;
    out->adapters = a.n_loaded;
    out->adapter_bytes = a.bytes;
    for (const request *x = r->first; x; x = x->next) out->preparing += x->engine_id == 0;
    pthread_mutex_unlock(&r->lock);
}

size_t runtime_requests(runtime *r, runtime_request_info *out, size_t cap) {
    size_t n = 0;
    double now = clock_s();
    pthread_mutex_lock(&r->lock);
    for (request *x = r->first; x; x = x->next, n++) {
        if (n >= cap) continue;
        out[n] = (runtime_request_info){ .id = x->id,
                                         .client = x->q.client,
                                         .task = x->q.task,
                                         .phase = (runtime_phase)atomic_load(&x->phase),
                                         .prompt_tokens = atomic_load(&x->prompt_tokens),
                                         .generated_tokens = atomic_load(&x->generated_tokens),
                                         .age_s = now - x->submitted_at };
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}
