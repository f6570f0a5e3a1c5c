/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a constraint costs inside the engine: generation speed under a JSON Schema against free generation.
 *
 *     bench_constrained MODEL TOKENIZER [SCHEMA.json] [tokens] [repetitions] [threads]
 *
 * The model may be one with random weights (hearth debug random-model), which has no tokenizer of its own; TOKENIZER is
 * any file or directory that has one with at most as many tokens. Both ways generate the same number of tokens, alone
 * and eight at once, in turns; the figure is the median of the ratios. Without a file the schema is a long list of
 * records with numbers, names, dates and short strings, where structure and content change every few tokens.
 */
#include "base/clock.h"
#include "base/file.h"
#include "bench/measure.h"
#include "bundle/tokenizer.h"
#include "engine/engine.h"
#include "grammar/grammar.h"
#include "kernels/cpu.h"
#include "models/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPS = 51, MAX_BATCH = 8 };

static const char SCHEMA[] =
    "{\"type\":\"array\",\"minItems\":1000,\"items\":{\"type\":\"object\",\"properties\":{"
    "\"id\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":99999},"
    "\"kind\":{\"enum\":[\"invoice\",\"order\",\"refund\",\"reminder\",\"credit note\"]},"
    "\"date\":{\"type\":\"string\",\"format\":\"date\"},"
    "\"total\":{\"type\":\"number\"},"
    "\"note\":{\"type\":\"string\",\"maxLength\":24},"
    "\"code\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-[0-9]{4}$\"},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"new\",\"paid\",\"late\"]},\"minItems\":1,\"maxItems\":3}},"
    "\"required\":[\"id\",\"kind\",\"date\",\"total\",\"note\",\"code\",\"tags\"],\"additionalProperties\":false}}";

/* --- a guide over a matcher --- */

typedef struct guide {
    engine_guide     g;
    grammar_matcher *m;
    size_t           words, own;
} guide;

static int guide_mask(engine_guide *self, uint32_t *mask, err *e) {
    guide *g = (guide *)self;
    int    rc = grammar_matcher_mask(g->m, mask, e);
    memset(mask + g->own, 0, (g->words - g->own) * sizeof *mask);
    return rc < 0 ? rc : 1;
}

static int guide_accept(engine_guide *self, int32_t t, err *e) {
    return grammar_matcher_accept(((guide *)self)->m, t, e);
}
static bool guide_must_stop(engine_guide *self) { return grammar_matcher_must_end(((guide *)self)->m); }

static void guide_free(engine_guide *self) {
    grammar_matcher_free(((guide *)self)->m);
    free(self);
}

static engine_guide *guide_open(grammar *g, const grammar_vocab *v, size_t words, err *e) {
    guide *out = calloc(1, sizeof *out);
    if (!out) return NULL;
    *out =
        (guide){ .g = { .mask = guide_mask, .accept = guide_accept, .must_stop = guide_must_stop, .free = guide_free },
                 .words = words,
                 .own = grammar_vocab_mask_words(v) };
    if (out->own <= words && grammar_matcher_open(&out->m, g, v, e) == 0) return &out->g;
    free(out);
    return NULL;
}

/* --- measuring --- */

typedef struct bench {
    engine        *engine;
    grammar       *grammar;
    grammar_vocab *vocab;
    int            n_tokens;
} bench;

/* Written by the engine's thread, read when it is idle. The clock runs while all sequences generate. */
typedef struct gauge {
    int    wanted, begun, ended, tokens;
    double from, to;
    err    why;
} gauge;

typedef struct runner {
    gauge *g;
    bool   begun;
} runner;

static void on_event(void *ctx, const engine_event *ev) {
    runner *r = ctx;
    gauge  *g = r->g;
    if (ev->kind == ENGINE_ERROR) g->why = *ev->error;
    if (ev->kind == ENGINE_DONE) g->ended++;
    if (ev->kind != ENGINE_TOKEN) return;
    if (!r->begun) {
        r->begun = true;
        if (++g->begun == g->wanted) g->from = g->to = clock_s();
    } else if (g->begun == g->wanted && g->ended == 0) {
        g->tokens++;
        g->to = clock_s();
    }
}

/* Tokens per second of all sequences together; negative: e says why. */
static double measure(const bench *b, int n_seq, bool constrained, uint64_t seed, err *e) {
    runner runners[MAX_BATCH] = { 0 };
    gauge  g = { .wanted = n_seq };
    int    rc = 0;
    for (int i = 0; i < n_seq && rc == 0; i++) {
        int32_t        prompt[] = { 100 + (int32_t)(seed * 37 % 1000), 200 + i };
        uint64_t       id;
        engine_request r = { .tokens = prompt,
                             .n_tokens = 2,
                             .max_tokens = b->n_tokens + 1,
                             .ignore_eos = true,
                             .no_cache = true,
                             .on_event = on_event,
                             .ctx = &runners[i] };
        runners[i].g = &g;
        sampling_params_default(&r.sampling);
        r.sampling.seed = seed * 100 + (uint64_t)i;
        r.sampling.top_k = 40;
        if (constrained &&
            !(r.guide = guide_open(b->grammar, b->vocab, ((size_t)engine_vocab(b->engine) + 31) / 32, e)))
            rc = ERR_NOMEM;
        if (rc == 0) rc = engine_submit(b->engine, &r, &id, e);
    }
    engine_wait_idle(b->engine);
    if (rc == 0 && g.why.code) {
        *e = g.why;
        rc = g.why.code;
    }
    return rc < 0 ? -1 : g.tokens / (g.to - g.from);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static int measure_batch(const bench *b, int n_seq, int reps, err *e) {
    double       free_speed[MAX_REPS], speed[MAX_REPS], ratio[MAX_REPS];
    engine_stats before, after;
    if (measure(b, n_seq, true, 1000, e) < 0) return -1; /* pages in, threads up, tables built */
    engine_stat(b->engine, &before);
    for (int i = 0; i < reps; i++) {
        bool first = i % 2 != 0; /* who goes first changes */
        for (int k = 0; k < 2; k++) {
            double v = measure(b, n_seq, first == (k == 0), (uint64_t)i, e);
            if (v < 0) return -1;
            *(first == (k == 0) ? &speed[i] : &free_speed[i]) = v;
        }
        ratio[i] = speed[i] / free_speed[i];
    }
    engine_stat(b->engine, &after);
    uint64_t masks = after.guide_masks - before.guide_masks;
    printf("%6d %14.2f %14.2f %10.1f%% %12.1f %14.1f\n", n_seq, median(free_speed, reps), median(speed, reps),
           100 * median(ratio, reps), masks ? 1e6 * (after.guide_s - before.guide_s) / (double)masks : 0,
           masks ? 1e6 * (after.guide_wait_s - before.guide_wait_s) / (double)masks : 0);
    return 0;
}

static int run(int argc, char **argv, err *e) {
    bench       b = { .n_tokens = argc > 4 ? atoi(argv[4]) : 48 };
    model_file *file = NULL;
    nn_model   *model = NULL;
    tok        *t = NULL;
    char       *schema = NULL;
    size_t      bytes = 0;
    int         rc, reps = argc > 5 ? atoi(argv[5]) : 5;
    if (reps < 1 || reps > MAX_REPS || b.n_tokens < 2) return err_set(e, ERR_ARG, "tokens or repetitions out of range");
    if ((rc = model_file_open(&file, argv[1], e)) < 0) goto done;
    if ((rc = nn_model_open(&model, file, models_list, &(nn_model_options){ 0 }, e)) < 0) goto done;
    if ((rc = bundle_tokenizer_open_path(&t, argv[2], NULL, e)) < 0) goto done;
    if (argc > 3 && *argv[3] && (rc = file_read(&schema, &bytes, argv[3], 1 << 24, e)) < 0) goto done;
    engine_options o = { .n_ctx = 512,
                         .max_seqs = MAX_BATCH,
                         .n_threads = argc > 6 ? atoi(argv[6]) : 0,
                         .cpu = cpu_detect(),
                         .no_prefix_cache = true,
                         .cache_bytes = (size_t)512 << 20 };
    if ((rc = engine_open(&b.engine, model, t, &o, e)) < 0) goto done;
    if ((rc = grammar_vocab_open(&b.vocab, t, e)) < 0) goto done;
    rc = grammar_from_schema(&b.grammar, schema ? (view){ schema, bytes } : view_of(SCHEMA), e);
    if (rc < 0) goto done;
    printf("%6s %14s %14s %11s %12s %14s\n", "batch", "free tok/s", "schema tok/s", "ratio", "us per mask",
           "us waited");
    if ((rc = measure_batch(&b, 1, reps, e)) == 0) rc = measure_batch(&b, MAX_BATCH, reps, e);
done:
    engine_free(b.engine);
    grammar_unref(b.grammar);
    grammar_vocab_free(b.vocab);
    free(schema);
    tok_free(t);
    nn_model_free(model);
    model_file_free(file);
    return rc;
}

int main(int argc, char **argv) {
    err e = { 0 };
    if (argc < 3) {
        printf("skipped: needs MODEL TOKENIZER [SCHEMA.json] [tokens] [repetitions] [threads]\n");
        return 0;
    }
    if (run(argc, argv, &e) == 0) return 0;
    fprintf(stderr, "%s\n", e.msg);
    return 1;
}
