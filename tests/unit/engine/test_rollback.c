/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions can be taken back. Sequences run side by side; again and again some of them evaluate up to 16 drafted
 * tokens, in one step or two, across page borders, and take them back: all, or where the model has no fixed state those
 * behind the right ones. Now and then the tree shares the page that the drafts are written to, and somebody reads it
 * there while they stand. Every logit of a right token equals that of a straight run of its sequence alone, bit for
 * bit. For every kind of state: pages, windows, latent pages, recurrent and convolution states.
 *
 * The executor is called in open_model and evaluate only.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "backend/backend.h"
#include "engine/cache.h"
#include "kernels/cpu.h"

#include <stdlib.h>
#include <string.h>

enum {
    SEQS = 3,
    PAGE = 16,
    PAGES = 64,
    LENGTH = 90,
    DRAFTS = 16,
    STEP = SEQS * DRAFTS,
    MAX_INDEX = (LENGTH + DRAFTS + PAGE - 1) / PAGE
};

static nn_exec *exec;
static cache    c;
static size_t   n_vocab;
static uint64_t seed;
static bool     goes_far_back; /* nothing but pages of all positions: what was final can be taken back, too */

typedef struct seq {
    cache_tables t;
    int32_t      slot, tokens[LENGTH];
    int          at;    /* positions that are final */
    int          kept;  /* so many were given to the tree */
    void        *state; /* of the checkpoint there */
    float       *want;  /* LENGTH rows of logits: the straight run */
    int32_t      draft[DRAFTS];
    int          n_draft, n_right; /* the first n_right are those of tokens */
} seq;

/* A piece of a step; the logits of all its rows go to out (NULL: nowhere). */
typedef struct part {
    seq           *s;
    const int32_t *tokens;
    int            from, n;
    float         *out;
} part;

static int below(int n) { return (int)(test_random(&seed) % (uint64_t)n); }

static void open_model(const fixture *f) {
    err               e;
    nn_exec_options   o = { .limits = { .max_tokens = STEP,
                                        .max_seqs = SEQS,
                                        .max_outputs = STEP,
                                        .max_logits = STEP,
                                        .page_tokens = PAGE,
                                        .max_pages = MAX_INDEX,
                                        .n_pages = PAGES,
                                        .n_slots = SEQS + 1 },
                            .k_type = NN_KV_F16,
                            .v_type = NN_KV_F16,
                            .n_threads = 1,
                            .cpu = cpu_detect() };
    cache_options     co = { .bytes = 8 << 20 };
    const nn_backend *backend;
    nn_device         device;
    if (backend_find("cpu", &backend, &device, &e) < 0) fail_msg("%s", e.msg);
    if (backend->open(&exec, &device, f->model, &o, &e) < 0) fail_msg("%s", e.msg);
    if (cache_open(&c, exec, &co, &e) < 0) fail_msg("%s", e.msg);
    n_vocab = (size_t)f->model->dims->n_vocab;
    goes_far_back = c.slot_bytes == 0;
    for (int g = 0; g < c.n_groups; g++) goes_far_back = goes_far_back && exec->groups.window[g] == 0;
}

/* One step of all parts, at most one per sequence. */
static void evaluate(const part *parts, int n_parts) {
    int32_t  token[STEP], pos[STEP], seq_of[STEP], rows[STEP], q_start[SEQS + 1] = { 0 }, kv_len[SEQS], slots[SEQS];
    int32_t  pages[KV_MAX_GROUPS][SEQS * MAX_INDEX];
    nn_batch b = { .n_seq = n_parts,
                   .token = token,
                   .pos = pos,
                   .seq_of = seq_of,
                   .q_start = q_start,
                   .kv_len = kv_len,
                   .pages_stride = MAX_INDEX,
                   .state_slot = slots,
                   .out_rows = rows };
    err      e;
    int      at = 0;
    if (n_parts == 0) return;
    for (int i = 0; i < n_parts; i++) {
        const part *p = &parts[i];
        assert_true(cache_grow(&c, &p->s->t, p->from + p->n));
        for (int k = 0; k < p->n; k++, b.n_tok++) {
            token[b.n_tok] = p->tokens[k];
            pos[b.n_tok] = p->from + k;
            seq_of[b.n_tok] = i;
            if (p->out) rows[b.n_out++] = b.n_tok;
        }
        q_start[i + 1] = b.n_tok;
        kv_len[i] = p->from + p->n;
        slots[i] = p->s->slot;
        for (int g = 0; g < c.n_groups; g++)
            memcpy(pages[g] + i * MAX_INDEX, p->s->t.tables[g], MAX_INDEX * sizeof **pages);
    }
    for (int g = 0; g < c.n_groups; g++) b.pages[g] = pages[g];
    if (nn_exec_step(exec, &b, &e) < 0) fail_msg("%s", e.msg);
    for (int i = 0; i < n_parts; i++) {
        if (!parts[i].out) continue;
        if (exec->backend->fetch(exec, NN_FETCH_LOGITS, at, parts[i].n, parts[i].out, &e) < 0) fail_msg("%s", e.msg);
        at += parts[i].n;
    }
}

static void assert_rows(const char *name, const seq *s, int from, int n, const float *got) {
    for (int i = 0; i < n; i++) {
        if (memcmp(got + (size_t)i * n_vocab, s->want + (size_t)(from + i) * n_vocab, n_vocab * sizeof *got) != 0)
            fail_msg("%s: slot %d, position %d differs", name, (int)s->slot, from + i);
    }
}

/* --- moves --- */

static void draft(seq *s) {
    int left = LENGTH - s->at;
    s->n_draft = 1 + below(DRAFTS);
    s->n_right = below(2) ? below((s->n_draft < left ? s->n_draft : left) + 1) : 0;
    for (int i = 0; i < s->n_draft; i++)
        s->draft[i] = i < s->n_right ? s->tokens[s->at + i] : (int32_t)below((int)n_vocab);
}

/* What the tree shares is what was computed, whatever was drafted over it since. */
static void check_shared(const char *name, const seq *s, seq *other, float *out) {
    if (s->kept == 0 || s->kept == LENGTH) return;
    other->at = cache_attach(&c, &other->t, &(kv_text){ .tokens = s->tokens }, s->kept + 1, other->slot);
    for (part p = { other, s->tokens, 0, 0, out }; other->at <= s->kept; other->at += p.n) {
        int left = s->kept + 1 - other->at;
        p.from = other->at;
        p.tokens = s->tokens + other->at;
        p.n = left < DRAFTS ? left : DRAFTS;
        evaluate(&p, 1);
        assert_rows(name, s, p.from, p.n, out);
    }
    cache_tables_release(&c, &other->t);
}

/* Some sequences go forward over drafts and back. */
static void there_and_back(const char *name, seq *seqs, seq *other, float *out) {
    part first[SEQS], second[SEQS];
    int  n = 0, m = 0;
    for (int i = 0; i < SEQS; i++) {
        seq *s = &seqs[i];
        s->n_draft = 0;
        if (s->at == LENGTH || below(4) == 0) continue;
        if (below(4) == 0) {
            cache_remember(&c, &s->t, &(kv_text){ .tokens = s->tokens }, s->at, s->slot, CACHE_MARK);
            s->kept = s->at;
        }
        if (goes_far_back && below(3) == 0) {
            s->at -= below((s->at < 20 ? s->at : 20) + 1);
            assert_true(cache_rollback(&c, &s->t, s->at, s->slot, NULL));
        }
        draft(s);
        assert_true(cache_checkpoint(&c, s->slot, s->state));
        int    cut = below(3) ? s->n_draft : 1 + below(s->n_draft);
        float *rows = out + (size_t)(i * DRAFTS) * n_vocab;
        first[n++] = (part){ s, s->draft, s->at, cut, rows };
        if (cut < s->n_draft)
            second[m++] = (part){ s, s->draft + cut, s->at + cut, s->n_draft - cut, rows + (size_t)cut * n_vocab };
    }
    evaluate(first, n);
    evaluate(second, m);
    check_shared(name, &seqs[below(SEQS)], other, out + STEP * n_vocab);
    for (int i = 0; i < SEQS; i++) {
        seq *s = &seqs[i];
        if (s->n_draft == 0) continue;
        assert_rows(name, s, s->at, s->n_right, out + (size_t)(i * DRAFTS) * n_vocab);
        if (c.slot_bytes == 0 && below(2)) s->at += s->n_right; /* what was right may stay */
        assert_true(cache_rollback(&c, &s->t, s->at, s->slot, s->state));
        assert_int_equal(s->t.n_pages, (s->at + PAGE - 1) / PAGE);
    }
}

/* Some sequences go on with their own tokens. */
static void go_on(const char *name, seq *seqs, float *out) {
    part parts[SEQS];
    int  n = 0;
    for (int i = 0; i < SEQS; i++) {
        seq *s = &seqs[i];
        int  left = LENGTH - s->at, most = left < 4 ? left : 4;
        if (left == 0 || below(3) == 0) continue;
        parts[n++] = (part){ s, s->tokens + s->at, s->at, 1 + below(most), out + (size_t)(i * DRAFTS) * n_vocab };
    }
    evaluate(parts, n);
    for (int i = 0; i < n; i++) {
        assert_rows(name, parts[i].s, parts[i].from, parts[i].n, parts[i].out);
        parts[i].s->at += parts[i].n;
        cache_trim(&c, &parts[i].s->t, parts[i].s->at);
    }
}

/* The whole sequence was computed. Into a shared page when no page is left for the copy: refused, nothing changed. */
static void check_full(seq *s) {
    int32_t   taken[KV_MAX_GROUPS][PAGES], before = s->t.n_pages;
    int       n_taken = 0;
    const int all[KV_MAX_GROUPS] = { 1, 1, 1, 1 };
    if (!c.n_groups) return;
    assert_true(LENGTH % PAGE != 0);
    cache_remember(&c, &s->t, &(kv_text){ .tokens = s->tokens }, LENGTH, s->slot, CACHE_MARK);
    while (kv_tree_evict(c.tree, all)) {
        for (int g = 0; g < c.n_groups; g++) taken[g][n_taken] = kv_pool_take(c.pool, g);
        n_taken++;
    }
    int32_t page = s->t.tables[0][s->t.n_pages - 1];
    assert_true(kv_pool_refs(c.pool, 0, page) > 1);
    assert_false(cache_rollback(&c, &s->t, LENGTH - 1, s->slot, s->state));
    assert_int_equal(s->t.n_pages, before);
    assert_int_equal(s->t.tables[0][s->t.n_pages - 1], page);
    for (int i = 0; i < n_taken; i++) {
        for (int g = 0; g < c.n_groups; g++) kv_pool_release(c.pool, g, taken[g][i]);
    }
}

/* --- a model --- */

static void open_seq(seq *s, int32_t slot) {
    *s = (seq){ .slot = slot };
    assert_int_equal(cache_tables_init(&c, &s->t, NULL), 0);
    for (int i = 0; i < LENGTH; i++) s->tokens[i] = below((int)n_vocab);
    s->state = malloc(c.slot_bytes + 1);
    s->want = malloc(LENGTH * n_vocab * sizeof *s->want);
    assert_true(s->state && s->want);
}

static void close_seq(seq *s) {
    cache_tables_release(&c, &s->t);
    cache_tables_deinit(&s->t);
    free(s->state);
    free(s->want);
}

static void straight_run(seq *s) {
    assert_true(cache_checkpoint(&c, s->slot, s->state)); /* of nothing */
    for (int i = 0; i < LENGTH; i++) {
        evaluate(&(part){ s, s->tokens + i, i, 1, s->want + (size_t)i * n_vocab }, 1);
        cache_trim(&c, &s->t, i + 1);
    }
    check_full(s);
    assert_true(cache_rollback(&c, &s->t, 0, s->slot, s->state));
    assert_int_equal(s->t.n_pages, 0);
}

static void check_model(const char *name) {
    fixture f;
    seq     seqs[SEQS], other;
    fixture_open(&f, name);
    open_model(&f);
    float *out = malloc((STEP + DRAFTS) * n_vocab * sizeof *out);
    assert_non_null(out);
    for (int i = 0; i < SEQS; i++) {
        open_seq(&seqs[i], i);
        straight_run(&seqs[i]);
    }
    open_seq(&other, SEQS);
    for (;;) {
        int done = 0;
        for (int times = below(4); times > 0; times--) there_and_back(name, seqs, &other, out);
        go_on(name, seqs, out);
        for (int i = 0; i < SEQS; i++) done += seqs[i].at == LENGTH;
        if (done == SEQS) break;
    }
    for (int i = 0; i < SEQS; i++) close_seq(&seqs[i]);
    close_seq(&other);
    for (int g = 0; g < c.n_groups; g++) assert_int_equal(kv_pool_available(c.pool, g), PAGES);
    cache_close(&c);
    nn_exec_free(exec);
    free(out);
    fixture_close(&f);
}

static void test_rollback(void **state) {
    static const char *const names[] = { "llama", "gemma3_text", "deepseek_v3", "qwen3_next",
                                         "lfm2",  "mamba2",      "kimi_linear" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int round = 0; round < (TEST_SANITIZED ? 1 : 4); round++) {
            seed = 8 + 100 * i + (uint64_t)round;
            check_model(names[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rollback) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
