/* SPDX-License-Identifier: Apache-2.0 */
/* One list per executor holds what was started and not waited for yet, in order; without `delay` an entry is carried
 * out at once and only its outcome waits. */
#include "backend/wrap.h"

#include "backend/backend.h"
#include "backend/plain_sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GARBAGE = 0xA5, NAN_BYTE = 0xFF };

typedef struct work {
    struct work *next;
    nn_ticket    ticket;
    bool         doomed, done; /* doomed: it fails when it is waited for */
    int          rc;           /* once it is done */
    err          error;
    bool         step;
    nn_batch     batch; /* of a step; the arrays lie in mem */
    arena        mem;
    float       *logits; /* what came out of it, and the guesses; the executor's once it was waited for */
    int32_t     *guess;
    nn_move     *moves;
    int          n;
    uint8_t    **out;  /* [n]: what a move out brought, until it is waited for */
    uint64_t    *sums; /* [n]: of the host memory when it was handed over */
} work;

typedef struct wrap_exec {
    nn_exec   x;
    nn_exec  *inner;
    wrap     *w;
    work     *pending;
    nn_ticket last;
    int       stepping; /* steps under way */
    bool      rows;     /* those of the last step may be fetched */
    float    *logits;   /* of the step that was waited for last, where executors go ahead */
    int32_t  *guess;    /* and what was guessed; */
    int32_t  *newest;   /* the guesses of the step that was carried out last */
    int64_t   n_newest;
    bool      by_ops; /* those rows come from read, since the step was run op by op */
    nn_batch  batch;  /* of the last step or begin: only the counts are looked at later */
} wrap_exec;

static wrap *current; /* see the header */

static const char *const names[WRAP_CALLS] = {
    "measure", "open", "submit", "wait", "fetch", "move", "wait for a move"
};
const char *wrap_call_name(wrap_call call) { return names[call]; }

/* --- what is asked of it ------------------------------------------------------------------------------------------ */

int wrap_init(wrap *w, const char *device, uint64_t seed, err *e) {
    *w = (wrap){ .random = seed, .wrong = -1 };
    int rc = backend_find(device, &w->inner, &w->device, e);
    if (rc < 0) return rc;
    pthread_mutex_init(&w->lock, NULL);
    wrap_use(w);
    return 0;
}

void wrap_deinit(wrap *w) {
    if (w->inner) pthread_mutex_destroy(&w->lock);
    if (current == w) current = NULL;
    *w = (wrap){ 0 };
}

void wrap_fail_at(wrap *w, wrap_call call, uint64_t nth, int code) {
    pthread_mutex_lock(&w->lock);
    w->rules[call].at = nth;
    w->rules[call].code = code;
    pthread_mutex_unlock(&w->lock);
}

void wrap_fail_share(wrap *w, wrap_call call, double share, int code) {
    pthread_mutex_lock(&w->lock);
    w->rules[call].share = share;
    w->rules[call].code = code;
    pthread_mutex_unlock(&w->lock);
}

void wrap_calm(wrap *w) {
    pthread_mutex_lock(&w->lock);
    memset(w->rules, 0, sizeof w->rules);
    pthread_mutex_unlock(&w->lock);
}

void wrap_delay(wrap *w, bool on) {
    pthread_mutex_lock(&w->lock);
    w->delay = on;
    pthread_mutex_unlock(&w->lock);
}

void wrap_ahead(wrap *w, double misses, double leaves) {
    w->ahead = true;
    w->misses = misses;
    w->leaves = leaves;
    wrap_use(w);
}

void wrap_wrong(wrap *w, int kind) {
    pthread_mutex_lock(&w->lock);
    w->wrong = kind;
    pthread_mutex_unlock(&w->lock);
}

static uint64_t locked(wrap *w, const uint64_t *value) {
    pthread_mutex_lock(&w->lock);
    uint64_t v = *value;
    pthread_mutex_unlock(&w->lock);
    return v;
}

uint64_t wrap_calls(wrap *w, wrap_call call) { return locked(w, &w->calls[call]); }
uint64_t wrap_failed(wrap *w, wrap_call call) { return locked(w, &w->failed[call]); }

uint64_t wrap_failures(wrap *w) {
    uint64_t n = 0;
    for (int k = 0; k < WRAP_CALLS; k++) n += wrap_failed(w, (wrap_call)k);
    return n;
}

const char *wrap_misuse(wrap *w) { return locked(w, &w->misuse) ? w->misused : NULL; }

/* --- deciding ------------------------------------------------------------------------------------------------------
 */

static uint64_t next_random(uint64_t *s) {
    uint64_t z = *s += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static bool chance(wrap *w, double share, uint64_t *count) {
    pthread_mutex_lock(&w->lock);
    bool yes = share > 0 && (double)(next_random(&w->random) >> 11) * 0x1p-53 < share;
    *count += yes;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

static int lost(const char *what, err *e) { return err_set(e, ERR_LOST, "injected: the device is gone (%s)", what); }

/* Counts a call, and fails it where a rule says so. A wait's loss takes effect when it is waited for. */
static int decide(wrap *w, wrap_call call, err *e) {
    wrap_rule *r = &w->rules[call];
    int        rc = 0;
    pthread_mutex_lock(&w->lock);
    uint64_t n = ++w->calls[call];
    bool     now = r->at && --r->at == 0;
    bool     chance = r->share > 0 && (double)(next_random(&w->random) >> 11) * 0x1p-53 < r->share;
    if (w->lost) {
        rc = lost(names[call], e);
    } else if (now || chance) {
        w->failed[call]++;
        if (r->code == ERR_LOST && call != WRAP_WAIT && call != WRAP_WAIT_MOVE) w->lost = true;
        rc = r->code == ERR_LOST ? lost(names[call], e)
                                 : err_set(e, r->code, "injected: %s %llu failed", names[call], (unsigned long long)n);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static int check_lost(wrap *w, const char *what, err *e) {
    pthread_mutex_lock(&w->lock);
    int rc = w->lost ? lost(what, e) : 0;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static int misused(wrap *w, err *e, const char *what) {
    pthread_mutex_lock(&w->lock);
    if (w->misuse++ == 0) snprintf(w->misused, sizeof w->misused, "%s", what);
    pthread_mutex_unlock(&w->lock);
    return err_set(e, ERR_ARG, "%s", what);
}

static bool delays(wrap *w) {
    pthread_mutex_lock(&w->lock);
    bool on = w->delay;
    pthread_mutex_unlock(&w->lock);
    return on;
}

static int wrong_kind(wrap *w) {
    pthread_mutex_lock(&w->lock);
    int kind = w->wrong;
    pthread_mutex_unlock(&w->lock);
    return kind;
}

/* --- garbage -------------------------------------------------------------------------------------------------------
 */

static size_t move_bytes(const nn_exec *x, const nn_move *m) {
    return m->kind == NN_MOVE_PAGE ? x->memory.page_bytes[m->group] : x->memory.slot_bytes;
}

/* Overwrites a page or a slot of the device. */
static void spoil(wrap_exec *x, nn_move m, int byte) {
    size_t bytes = move_bytes(x->inner, &m);
    void  *host = malloc(bytes + 1);
    if (!host) return;
    memset(host, byte, bytes);
    m.from = NN_HOST;
    m.host = host;
    (void)nn_exec_move(x->inner, &m, 1, NULL);
    free(host);
}

static void spoil_moves(wrap_exec *x, const nn_move *moves, int n, bool host_too) {
    for (int i = 0; i < n; i++) {
        if (moves[i].to != NN_HOST)
            spoil(x, moves[i], GARBAGE);
        else if (host_too)
            memset(moves[i].host, GARBAGE, move_bytes(x->inner, &moves[i]));
    }
}

/* The batch with other tokens: what a step leaves that went wrong half-way. Its slots become NaN. */
static void spoil_step(wrap_exec *x, const nn_batch *b) {
    int64_t  vocab = nn_exec_width(x->inner, NN_FETCH_LOGITS);
    int32_t *token = malloc((size_t)b->n_tok * sizeof *token);
    nn_batch other = *b;
    if (!token) return;
    const nn_op *first = &x->x.model->tape->ops[0];
    if (first->kind == NN_OP_EMBED) vocab = first->u.embed.table->rows;
    for (int t = 0; t < b->n_tok; t++) token[t] = (int32_t)(((int64_t)t * 7 + 3) % vocab);
    other.token = token;
    other.embd = NULL;
    other.ahead = NULL;
    (void)nn_exec_step(x->inner, &other, NULL);
    free(token);
    for (int s = 0; s < b->n_seq && x->inner->memory.slot_bytes; s++)
        spoil(x, (nn_move){ .kind = NN_MOVE_SLOT, .to = b->state_slot[s] }, NAN_BYTE);
}

/* --- an op that is wrong -------------------------------------------------------------------------------------------
 */

static size_t floats_of(const wrap_exec *x, nn_buf b) {
    const nn_tape *t = x->x.model->tape;
    return (size_t)(nn_batch_rows(&x->batch, t, b) * t->bufs[b].width);
}

/* Runs a store with one value of the first row changed. */
static int wrong_store(wrap_exec *x, int i, err *e) {
    const nn_op      *op = &x->x.model->tape->ops[i];
    const nn_backend *b = x->inner->backend;
    size_t            n = floats_of(x, op->in[0]);
    float            *v = malloc((n + 1) * sizeof *v), right;
    double            sum = 0;
    int               rc;
    if (!v) return err_set_nomem(e);
    if ((rc = b->read(x->inner, op->in[0], v, e)) < 0) goto done;
    for (size_t k = 0; k < n; k++) sum += (double)v[k] * (double)v[k];
    right = v[0];
    v[0] += (float)(2 * sqrt(sum / (double)n) + 1e-3);
    if ((rc = b->write(x->inner, op->in[0], v, e)) < 0) goto done;
    if ((rc = b->run(x->inner, i, i + 1, e)) < 0) goto done;
    v[0] = right;
    rc = b->write(x->inner, op->in[0], v, e);
done:
    free(v);
    return rc;
}

static int wrong_op(wrap_exec *x, int i, err *e) {
    const nn_op      *op = &x->x.model->tape->ops[i];
    const nn_backend *b = x->inner->backend;
    double            bound;
    int               rc;
    if (!op->out) return wrong_store(x, i, e);
    if ((rc = b->run(x->inner, i, i + 1, e)) < 0) return rc;
    size_t n = floats_of(x, op->out), at = op->kind == NN_OP_ROUTE    ? 1 /* a weight, not an expert's number */
                                           : op->kind == NN_OP_CHOOSE ? 0 /* how many were chosen */
                                                                      : n / 2;
    float *v = n > at ? malloc(n * sizeof *v) : NULL;
    if (!v) return n > at ? err_set_nomem(e) : 0;
    if ((rc = backend_bound(x->inner, &x->batch, i, &bound, e)) == 0 && (rc = b->read(x->inner, op->out, v, e)) == 0) {
        double off = 2.2 * bound + 1e-6;
        v[at] += (float)(v[at] < 0 ? -off : off);
        rc = b->write(x->inner, op->out, v, e);
    }
    free(v);
    return rc;
}

static int run_ops(wrap_exec *x, int first, int end, err *e) {
    int kind = wrong_kind(x->w), rc = 0;
    if (kind < 0) return x->inner->backend->run(x->inner, first, end, e);
    for (int i = first; i < end && rc == 0; i++)
        rc = (int)x->x.model->tape->ops[i].kind == kind ? wrong_op(x, i, e)
                                                        : x->inner->backend->run(x->inner, i, i + 1, e);
    return rc;
}

/* --- carrying out --------------------------------------------------------------------------------------------------
 */

static uint64_t sum_of(const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint64_t       h = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void work_free(work *k) {
    for (int i = 0; k->out && i < k->n; i++) free(k->out[i]);
    free((void *)k->out);
    free(k->moves);
    free(k->sums);
    free(k->logits);
    free(k->guess);
    arena_deinit(&k->mem);
    free(k);
}

/* The tokens that the step before was guessed to give, in place of those that nobody knew. */
static void fill_guessed(wrap_exec *x, nn_batch *b) {
    int32_t *token = (int32_t *)(uintptr_t)b->token;
    for (int t = 0; b->ahead && t < b->n_tok; t++) {
        if (b->ahead[t] >= x->n_newest)
            (void)misused(x->w, NULL, "a token was to be guessed from a row that is not there");
        else if (b->ahead[t] >= 0)
            token[t] = x->newest[b->ahead[t]];
    }
    b->ahead = NULL;
}

/* Rows are kept for picks, and tokens are guessed from them. A step that failed guesses, too. */
static int keep_logits(wrap_exec *x, work *k, err *e) {
    int64_t width = nn_exec_width(x->inner, NN_FETCH_LOGITS), n = k->batch.n_out - k->batch.n_hidden;
    int     rc = 0;
    x->n_newest = 0;
    k->logits = calloc((size_t)(n * width) + 1, sizeof *k->logits);
    k->guess = calloc((size_t)n + 1, sizeof *k->guess);
    int32_t *newest = realloc(x->newest, ((size_t)n + 1) * sizeof *newest);
    if (newest) x->newest = newest;
    if (!k->logits || !k->guess || !newest) return err_set_nomem(e);
    if (!k->doomed) rc = x->inner->backend->fetch(x->inner, NN_FETCH_LOGITS, 0, n, k->logits, e);
    for (int64_t i = 0; i < n; i++) {
        sampling_result r = { 0 };
        if (k->batch.guess && k->batch.guess[i].params)
            (void)plain_sample(k->logits + i * width, (size_t)width, &k->batch.guess[i], 1, &r, NULL, NULL);
        if (chance(x->w, x->w->misses, &x->w->n_missed)) r.token++;
        k->guess[i] = x->newest[i] = (int32_t)((r.token < 0 ? 0 : r.token) % width);
    }
    x->n_newest = n;
    return rc;
}

static int run_step(wrap_exec *x, const nn_batch *b, err *e) {
    int rc;
    x->by_ops = wrong_kind(x->w) >= 0;
    if (!x->by_ops) return nn_exec_step(x->inner, b, e);
    if ((rc = x->inner->backend->begin(x->inner, b, e)) < 0) return rc;
    return run_ops(x, x->x.options.first_op, x->x.options.end_op, e);
}

/* Host memory as it was handed over? */
static bool untouched(const wrap_exec *x, const work *k, int i) {
    return sum_of(k->moves[i].host, move_bytes(x->inner, &k->moves[i])) == k->sums[i];
}

static int run_moves(wrap_exec *x, work *k, err *e) {
    for (int i = 0; i < k->n; i++) {
        if (k->moves[i].from == NN_HOST && !untouched(x, k, i))
            (void)misused(x->w, NULL, "the host memory of a move in changed before it was waited for");
    }
    /* Moves out go to memory of ours: the caller's is written when the caller waits. */
    for (int i = 0; i < k->n; i++) {
        nn_move m = k->moves[i];
        if (m.to == NN_HOST) m.host = k->out[i];
        int rc = nn_exec_move(x->inner, &m, 1, e);
        if (rc < 0) return rc;
    }
    return 0;
}

static void carry_out(wrap_exec *x, work *k) {
    if (k->done) return;
    k->done = true;
    if (k->step) fill_guessed(x, &k->batch);
    if (k->doomed) {
        k->step ? spoil_step(x, &k->batch) : spoil_moves(x, k->moves, k->n, false);
        for (int i = 0; !k->step && i < k->n; i++) {
            if (k->out[i]) memset(k->out[i], GARBAGE, move_bytes(x->inner, &k->moves[i]));
        }
        k->rc = k->error.code;
    } else {
        k->rc = k->step ? run_step(x, &k->batch, &k->error) : run_moves(x, k, &k->error);
    }
    err other;
    if (k->step && x->x.ahead && keep_logits(x, k, &other) < 0 && k->rc == 0) {
        k->rc = other.code;
        k->error = other;
    }
}

/* Everything that was started up to this ticket. */
static void carry_out_until(wrap_exec *x, nn_ticket last) {
    for (work *k = x->pending; k && k->ticket <= last; k = k->next) carry_out(x, k);
}

static void add_work(wrap_exec *x, work *k) {
    work **at = &x->pending;
    while (*at) at = &(*at)->next;
    *at = k;
    k->ticket = ++x->last;
    k->doomed = decide(x->w, k->step ? WRAP_WAIT : WRAP_WAIT_MOVE, &k->error) < 0;
    if (!delays(x->w)) carry_out_until(x, k->ticket);
}

/* --- the backend's functions ---------------------------------------------------------------------------------------
 */

static int wrap_devices(nn_device *out, int cap) {
    if (!current || cap < 1) return 0;
    *out = current->device;
    return 1;
}

static int wrap_measure(nn_memory *out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    int rc = decide(current, WRAP_MEASURE, e);
    return rc < 0 ? rc : current->inner->measure(out, d, m, o, e);
}

static int wrap_open(nn_exec **out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    int rc = decide(current, WRAP_OPEN, e);
    *out = NULL;
    if (rc < 0) return rc;
    wrap_exec *x = calloc(1, sizeof *x);
    if (!x) return err_set_nomem(e);
    if ((rc = current->inner->open(&x->inner, d, m, o, e)) < 0) {
        free(x);
        return rc;
    }
    x->w = current;
    x->x = *x->inner;
    x->x.backend = wrap_backend;
    x->x.ahead = current->ahead;
    *out = &x->x;
    return 0;
}

static void wrap_free(nn_exec *base) {
    wrap_exec *x = (wrap_exec *)base;
    carry_out_until(x, x->last);
    while (x->pending) {
        work *k = x->pending;
        x->pending = k->next;
        work_free(k);
    }
    nn_exec_free(x->inner);
    free(x->logits);
    free(x->guess);
    free(x->newest);
    free(x);
}

static const int32_t *keep(arena *mem, const int32_t *from, size_t n) {
    int32_t *to = from ? arena_alloc(mem, (n + 1) * sizeof *to) : NULL;
    if (to) memcpy(to, from, n * sizeof *to);
    return to;
}

static bool keep_rows(const wrap_exec *x, work *k, const nn_batch *b) {
    if (!b->embd) return true;
    size_t        width = (size_t)(x->x.model->tape->ops[0].u.embed.table->cols * x->x.model->tape->n_parts);
    const float **rows = arena_calloc(&k->mem, (size_t)b->n_tok, sizeof *rows);
    for (int t = 0; rows && t < b->n_tok; t++) {
        float *row = b->embd[t] ? arena_alloc(&k->mem, width * sizeof *row) : NULL;
        if (b->embd[t] && !row) return false;
        if (row) memcpy(row, b->embd[t], width * sizeof *row);
        rows[t] = row;
    }
    k->batch.embd = rows;
    return rows != NULL;
}

/* With their parameters, which their sequences may take along. */
static const sampling_row *keep_guess(arena *mem, const nn_batch *b) {
    size_t           n = (size_t)(b->n_out - b->n_hidden);
    sampling_row    *to = b->guess ? arena_calloc(mem, n + 1, sizeof *to) : NULL;
    sampling_params *p = to ? arena_calloc(mem, n + 1, sizeof *p) : NULL;
    for (size_t i = 0; p && i < n; i++) {
        to[i] = b->guess[i];
        if (!to[i].params) continue;
        p[i] = *to[i].params;
        to[i].params = &p[i];
    }
    return p ? to : NULL;
}

/* The batch is only lent until submit returns. */
static bool keep_batch(const wrap_exec *x, work *k, const nn_batch *b) {
    size_t n_tok = (size_t)b->n_tok, n_seq = (size_t)b->n_seq;
    k->batch = *b;
    k->batch.token = keep(&k->mem, b->token, n_tok);
    k->batch.pos = keep(&k->mem, b->pos, n_tok);
    k->batch.seq_of = keep(&k->mem, b->seq_of, n_tok);
    k->batch.q_start = keep(&k->mem, b->q_start, n_seq + 1);
    k->batch.kv_len = keep(&k->mem, b->kv_len, n_seq);
    k->batch.state_slot = keep(&k->mem, b->state_slot, n_seq);
    k->batch.out_rows = keep(&k->mem, b->out_rows, (size_t)b->n_out);
    k->batch.row_end = keep(&k->mem, b->row_end, n_tok);
    k->batch.row_begin = keep(&k->mem, b->row_begin, n_tok);
    k->batch.adapter = keep(&k->mem, b->adapter, n_tok);
    k->batch.pos_axes = keep(&k->mem, b->pos_axes, n_tok * (size_t)b->n_axes);
    k->batch.ahead = keep(&k->mem, b->ahead, n_tok);
    k->batch.guess = keep_guess(&k->mem, b);
    bool ok = k->batch.token && k->batch.pos && k->batch.seq_of && k->batch.q_start && k->batch.kv_len;
    for (int g = 0; g < x->x.groups.n; g++)
        ok = (k->batch.pages[g] = keep(&k->mem, b->pages[g], n_seq * (size_t)b->pages_stride)) && ok;
    return keep_rows(x, k, b) && ok;
}

static int wrap_submit(nn_exec *base, const nn_batch *b, nn_ticket *step, err *e) {
    wrap_exec *x = (wrap_exec *)base;
    work      *k = NULL;
    int        rc = check_lost(x->w, "submit", e);
    if (rc < 0) return rc;
    if (x->stepping > (b->ahead ? 1 : 0)) return misused(x->w, e, "a step was submitted while one is under way");
    x->rows = false;
    if ((rc = nn_exec_check(base, b, e)) < 0) return rc;
    if ((rc = decide(x->w, WRAP_SUBMIT, e)) < 0) {
        carry_out_until(x, x->last);
        spoil_step(x, b);
        return rc;
    }
    if (!(k = calloc(1, sizeof *k))) return err_set_nomem(e);
    arena_init(&k->mem, 0);
    k->step = true;
    if (!keep_batch(x, k, b)) {
        work_free(k);
        return err_set_nomem(e);
    }
    x->batch = *b;
    x->stepping++;
    if (b->ahead) (void)chance(x->w, 1, &x->w->n_ahead);
    add_work(x, k);
    *step = k->ticket;
    return 0;
}

/* What a move out brought, into the memory that it was for. */
static void deliver(wrap_exec *x, work *k) {
    for (int i = 0; i < k->n; i++) {
        if (!k->out[i]) continue;
        if (!untouched(x, k, i))
            (void)misused(x->w, NULL, "the host memory of a move out changed before it was waited for");
        memcpy(k->moves[i].host, k->out[i], move_bytes(x->inner, &k->moves[i]));
    }
}

static int wrap_wait(nn_exec *base, nn_ticket ticket, err *e) {
    wrap_exec *x = (wrap_exec *)base;
    work     **at = &x->pending;
    int        rc = check_lost(x->w, "wait", e);
    while (*at && (*at)->ticket != ticket) at = &(*at)->next;
    if (rc < 0) return rc;
    if (!*at) {
        if (ticket && ticket <= x->last) (void)misused(x->w, NULL, "a ticket was waited for twice");
        return err_set(e, ERR_ARG, "ticket %llu is not under way", (unsigned long long)ticket);
    }
    carry_out_until(x, ticket);
    work *k = *at;
    *at = k->next;
    rc = k->rc;
    if (rc < 0 && e) *e = k->error;
    if (rc == ERR_LOST && k->doomed) {
        pthread_mutex_lock(&x->w->lock);
        x->w->lost = true;
        pthread_mutex_unlock(&x->w->lock);
    }
    if (k->step) {
        free(x->logits);
        free(x->guess);
        x->logits = k->logits;
        x->guess = k->guess;
        k->logits = NULL;
        k->guess = NULL;
        x->rows = --x->stepping == 0 && rc == 0;
    } else {
        deliver(x, k);
    }
    work_free(k);
    return rc;
}

/* Rows of a step that was run op by op. */
static int fetch_read(wrap_exec *x, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e) {
    const nn_tape *t = x->x.model->tape;
    nn_buf         b = what == NN_FETCH_LOGITS ? t->logits : t->hidden;
    int64_t        rows = nn_batch_rows(&x->batch, t, b), width = t->bufs[b].width;
    if (first < 0 || n < 0 || n > rows || first > rows - n) return err_set(e, ERR_ARG, "rows out of range");
    float *all = malloc((size_t)(rows * width + 1) * sizeof *all);
    if (!all) return err_set_nomem(e);
    int rc = x->inner->backend->read(x->inner, b, all, e);
    if (rc == 0) memcpy(to, all + first * width, (size_t)(n * width) * sizeof *to);
    free(all);
    return rc;
}

static int wrap_fetch(nn_exec *base, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e) {
    wrap_exec *x = (wrap_exec *)base;
    int        rc = decide(x->w, WRAP_FETCH, e);
    if (rc < 0) return rc;
    if (!x->rows) return misused(x->w, e, "rows were fetched while there are none");
    if (x->by_ops) return fetch_read(x, what, first, n, to, e);
    return x->inner->backend->fetch(x->inner, what, first, n, to, e);
}

/* Of rows that can be fetched everything is left. */
static int wrap_sample(nn_exec *base, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out,
                       err *e) {
    wrap_exec *x = (wrap_exec *)base;
    int64_t    width = nn_exec_width(x->inner, NN_FETCH_LOGITS);
    int        rc = check_lost(x->w, "sample", e);
    for (int i = 0; i < n && rc == 0; i++) {
        double margin = 1;
        out[i] = (sampling_result){ .token = SAMPLING_LEFT };
        if (!x->rows && !chance(x->w, x->w->leaves, &x->w->n_left))
            rc = plain_sample(x->logits + out_rows[i] * width, (size_t)width, &rows[i], 1, &out[i], &margin, e);
        if (margin < 1e-6) out[i].token = SAMPLING_LEFT;
        out[i].guess = x->guess[out_rows[i]];
    }
    return rc;
}

static bool keep_moves(wrap_exec *x, work *k, const nn_move *moves, int n) {
    k->n = n;
    k->moves = calloc((size_t)n + 1, sizeof *k->moves);
    k->out = calloc((size_t)n + 1, sizeof *k->out);
    k->sums = calloc((size_t)n + 1, sizeof *k->sums);
    if (!k->moves || !k->out || !k->sums) return false;
    for (int i = 0; i < n; i++) {
        size_t bytes = move_bytes(x->inner, &moves[i]);
        k->moves[i] = moves[i];
        if (moves[i].to == NN_HOST && !(k->out[i] = malloc(bytes + 1))) return false;
        if (moves[i].to == NN_HOST) memset(moves[i].host, GARBAGE, bytes);
        if (moves[i].to == NN_HOST || moves[i].from == NN_HOST) k->sums[i] = sum_of(moves[i].host, bytes);
    }
    return true;
}

static int wrap_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e) {
    wrap_exec *x = (wrap_exec *)base;
    work      *k;
    int        rc = check_lost(x->w, "move", e);
    if (rc < 0 || (rc = nn_exec_check_moves(x->inner, moves, n, e)) < 0) return rc;
    if ((rc = decide(x->w, WRAP_MOVE, e)) < 0) {
        carry_out_until(x, x->last);
        spoil_moves(x, moves, n, true);
        return rc;
    }
    if (!(k = calloc(1, sizeof *k))) return err_set_nomem(e);
    arena_init(&k->mem, 0);
    if (!keep_moves(x, k, moves, n)) {
        work_free(k);
        return err_set_nomem(e);
    }
    add_work(x, k);
    *ticket = k->ticket;
    return 0;
}

/* --- op by op: nothing fails here but what the other one fails -----------------------------------------------------
 */

static int wrap_begin(nn_exec *base, const nn_batch *b, err *e) {
    wrap_exec *x = (wrap_exec *)base;
    int        rc = check_lost(x->w, "begin", e);
    if (rc < 0) return rc;
    carry_out_until(x, x->last);
    x->batch = *b;
    x->rows = false;
    return x->inner->backend->begin(x->inner, b, e);
}

static int wrap_run(nn_exec *base, int first_op, int end_op, err *e) {
    wrap_exec *x = (wrap_exec *)base;
    int        rc = check_lost(x->w, "run", e);
    if (rc == 0) rc = run_ops(x, first_op, end_op, e);
    x->rows = x->by_ops = rc == 0 && end_op == x->x.options.end_op;
    return rc;
}

static int wrap_read(nn_exec *base, nn_buf b, float *to, err *e) {
    wrap_exec *x = (wrap_exec *)base;
    int        rc = check_lost(x->w, "read", e);
    return rc < 0 ? rc : x->inner->backend->read(x->inner, b, to, e);
}

static int wrap_write(nn_exec *base, nn_buf b, const float *from, err *e) {
    wrap_exec *x = (wrap_exec *)base;
    int        rc = check_lost(x->w, "write", e);
    return rc < 0 ? rc : x->inner->backend->write(x->inner, b, from, e);
}

static nn_backend backend = {
    .name = "wrap",
    .devices = wrap_devices,
    .measure = wrap_measure,
    .open = wrap_open,
    .free = wrap_free,
    .submit = wrap_submit,
    .wait = wrap_wait,
    .fetch = wrap_fetch,
    .move = wrap_move,
    .begin = wrap_begin,
    .run = wrap_run,
    .read = wrap_read,
    .write = wrap_write,
};
const nn_backend *const wrap_backend = &backend;

void wrap_use(wrap *w) {
    current = w;
    backend.can = w->inner->can; /* of the one that is opened next */
    backend.sample = w->ahead ? wrap_sample : NULL;
}
