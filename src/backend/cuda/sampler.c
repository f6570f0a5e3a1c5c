/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/sampler.h"

#include "params/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ASKS = 128, MAX_EDITED = 16, MAX_MASKS = 32, MAX_EDITS = 1 << 14 };

/* --- memory --------------------------------------------------------------------------------------------------------- */

static size_t words_of(const cuda_sampler *s) { return ((size_t)s->width + 31) / 32; }

void cuda_sampler_plan(cuda_sampler *s, int rows, int64_t width) {
    *s = (cuda_sampler){ .width = width, .rows = rows };
    s->max_asks = rows < MAX_ASKS ? rows : MAX_ASKS;
    s->max_edited = rows < MAX_EDITED ? rows : MAX_EDITED;
}

static void *place(uint8_t *base, size_t *at, size_t bytes) {
    void *here = base ? base + *at : NULL;
    *at += (bytes + 255) / 256 * 256;
    return here;
}

/* Lays out the device's side at base, or only counts. */
static size_t lay_out(const cuda_sampler *s, cuda_picks *p, uint8_t *base) {
    size_t at = 0, asks = (size_t)s->max_asks, edited = (size_t)s->max_edited, rows = (size_t)s->rows;
    p->tops = place(base, &at, (rows > asks ? rows : asks) * CUDA_GROUPS * sizeof *p->tops);
    p->likely = place(base, &at, rows * sizeof *p->likely);
    p->asks = place(base, &at, asks * sizeof *p->asks);
    p->edits = place(base, &at, MAX_EDITS * sizeof *p->edits);
    p->masks = place(base, &at, MAX_MASKS * words_of(s) * sizeof *p->masks);
    p->edited = place(base, &at, edited * (size_t)s->width * sizeof *p->edited);
    p->asked = place(base, &at, asks * sizeof *p->asked);
    p->sums = place(base, &at, asks * 2 * CUDA_GROUPS * sizeof *p->sums);
    p->drawn = place(base, &at, asks * sizeof *p->drawn);
    return at;
}

size_t cuda_sampler_bytes(const cuda_sampler *s) {
    cuda_picks none;
    return s->rows ? lay_out(s, &none, NULL) : 0;
}

static size_t lay_out_host(cuda_sampler *s, uint8_t *base) {
    size_t at = 0, asks = (size_t)s->max_asks;
    for (int i = 0; i < 2; i++) s->lists[i] = place(base, &at, (size_t)s->rows * sizeof *s->likely);
    s->likely = s->lists[0];
    s->asked = place(base, &at, asks * sizeof *s->asked);
    s->drawn = place(base, &at, asks * sizeof *s->drawn);
    s->asks = place(base, &at, asks * sizeof *s->asks);
    s->edits = place(base, &at, MAX_EDITS * sizeof *s->edits);
    s->masks = place(base, &at, MAX_MASKS * words_of(s) * sizeof *s->masks);
    s->whose = place(base, &at, MAX_MASKS * sizeof *s->whose);
    s->who = place(base, &at, asks * sizeof *s->who);
    return at;
}

int cuda_sampler_open(cuda_sampler *s, void *device, const float *logits, err *e) {
    if (s->rows == 0) return 0;
    (void)lay_out(s, &s->picks, device);
    s->picks.logits = logits;
    s->picks.width = s->width;
    int rc = cuda_host_alloc(&s->host, lay_out_host(s, NULL), e);
    if (rc == 0) (void)lay_out_host(s, s->host);
    return rc;
}

void cuda_sampler_close(cuda_sampler *s) {
    cuda_host_free(s->host);
    s->host = NULL;
}

/* --- from the list alone -------------------------------------------------------------------------------------------- */

int cuda_sampler_step(const cuda_sampler *s, int64_t rows, cuda_stream stream, err *e) {
    return rows ? cuda_op_likely(&s->picks, rows, stream, e) : 0;
}

int cuda_sampler_send(const cuda_sampler *s, int64_t rows, int turn, cuda_stream stream, err *e) {
    return rows ? cuda_receive(s->lists[turn], s->picks.likely, (size_t)rows * sizeof *s->likely, stream, e) : 0;
}

static uint32_t guess_stage(sampling_stage stage) {
    switch (stage) {
    case SAMPLING_TOP_K: return CUDA_GUESS_TOP_K;
    case SAMPLING_TOP_P: return CUDA_GUESS_TOP_P;
    case SAMPLING_MIN_P: return CUDA_GUESS_MIN_P;
    case SAMPLING_TEMPERATURE: return CUDA_GUESS_TEMPERATURE;
    default: return 0;
    }
}

cuda_guess cuda_sampler_guess(const sampling_row *r) {
    const sampling_params *p = r ? r->params : NULL;
    cuda_guess             g = { 0 };
    if (!p || chain_greedy(p)) return g;
    double uniform = rng_uniform(p->seed, r->position, SAMPLING_DRAW_PICK);
    g.temperature = p->temperature;
    g.top_p = p->top_p;
    g.top_k = p->top_k > 0 ? p->top_k : CUDA_LIKELY;
    g.log_min_p = p->min_p > 0 ? logf(p->min_p) : -INFINITY;
    memcpy(g.uniform, &uniform, sizeof uniform);
    for (int i = 0, n = 0; i < p->n_order; i++) {
        uint32_t stage = guess_stage(p->order[i]);
        if (stage && n < 8) g.stages |= stage << 4 * n++;
    }
    return g;
}

static chain_list list_of(const cuda_likely *l) {
    return (chain_list){ .token = l->token, .x = l->x, .n = l->n, .whole = l->floor == -INFINITY, .floor = l->floor };
}

static bool wants_logprobs(const sampling_row *r) { return r->want_logprob || r->n_top > 0; }

/* No stage makes the row shorter than it is. */
static bool draws_whole(const sampling_row *r) { return !chain_greedy(r->params) && !chain_cuts(r->params); }

/* The first that the mask allows; SAMPLING_LEFT: none of the list. */
static int32_t first_allowed(const cuda_likely *l, const uint32_t *mask) {
    for (int i = 0; i < l->n; i++) {
        if (!mask || mask[l->token[i] >> 5] >> (l->token[i] & 31) & 1) return l->token[i];
    }
    return l->floor == -INFINITY ? -1 : SAMPLING_LEFT;
}

/* changed: the list is that of the row as the parameters have changed it. */
static int32_t pick_from(cuda_sampler *s, const cuda_likely *likely, const sampling_row *r, bool changed, double sum) {
    if (!changed && chain_greedy(r->params) && !r->params->n_bias && !r->n_counts)
        return first_allowed(likely, r->mask);
    chain_list l = list_of(likely);
    cand_set   set = { .c = s->cands };
    return chain_fill(&set, &l, changed ? NULL : r) ? chain_pick(&set, &l, r, sum) : SAMPLING_LEFT;
}

/* --- what is asked of the device ------------------------------------------------------------------------------------ */

/* The number of a mask, which is copied when it is new. */
static int mask_number(cuda_sampler *s, const uint32_t *mask) {
    for (int i = 0; i < s->picks.n_masks; i++) {
        if (s->whose[i] == mask) return i + 1;
    }
    memcpy(s->masks + (size_t)s->picks.n_masks * words_of(s), mask, words_of(s) * sizeof *s->masks);
    s->whose[s->picks.n_masks] = mask;
    return ++s->picks.n_masks;
}

static size_t edits_of(const sampling_row *r) { return r->params->n_bias + r->n_counts; }

static bool has_room(const cuda_sampler *s, const sampling_row *r) {
    if (s->picks.n == s->max_asks || (r->mask && s->picks.n_masks == MAX_MASKS)) return false;
    return edits_of(r) == 0 || (s->picks.n_edited < s->max_edited && edits_of(r) <= (size_t)(MAX_EDITS - s->n_edits));
}

static void put_edits(cuda_sampler *s, cuda_ask *a, const sampling_row *r) {
    const sampling_params *p = r->params;
    a->edited = ++s->picks.n_edited;
    a->edits_at = s->n_edits;
    for (size_t i = 0; i < p->n_bias; i++) {
        int32_t t = p->bias[i].token;
        if (t < 0 || t >= s->width) continue;
        s->edits[s->n_edits++] = (cuda_edit){ .token = t, .by.bias = p->bias[i].bias };
        a->n_bias++;
    }
    for (size_t i = 0; i < r->n_counts; i++)
        s->edits[s->n_edits++] = (cuda_edit){ .token = r->counts[i].token, .by.count = r->counts[i].count };
    a->n_counts = (int32_t)r->n_counts;
}

static void put_ask(cuda_sampler *s, int i, int32_t row, const sampling_row *r) {
    const sampling_params *p = r->params;
    cuda_ask              *a = &s->asks[s->picks.n];
    *a = (cuda_ask){ .uniform = rng_uniform(p->seed, r->position, SAMPLING_DRAW_PICK),
                     .temperature = draws_whole(r) ? chain_temperature(p) : 1.0f,
                     .repeat = p->repeat_penalty,
                     .frequency = p->frequency_penalty,
                     .presence = p->presence_penalty,
                     .row = row };
    if (r->mask) a->mask = mask_number(s, r->mask);
    if (edits_of(r)) put_edits(s, a, r);
    s->who[s->picks.n++] = i;
}

static int send(const cuda_sampler *s, cuda_stream stream, err *e) {
    const cuda_picks *p = &s->picks;
    size_t            masks = (size_t)p->n_masks * words_of(s) * sizeof *s->masks;
    int               rc = cuda_send((void *)(uintptr_t)p->asks, s->asks, (size_t)p->n * sizeof *s->asks, stream, e);
    if (rc == 0 && masks) rc = cuda_send((void *)(uintptr_t)p->masks, s->masks, masks, stream, e);
    if (rc == 0 && s->n_edits)
        rc = cuda_send((void *)(uintptr_t)p->edits, s->edits, (size_t)s->n_edits * sizeof *s->edits, stream, e);
    return rc;
}

static int ask(const cuda_sampler *s, cuda_stream stream, err *e) {
    const cuda_picks *p = &s->picks;
    int               rc = send(s, stream, e);
    if (rc == 0) rc = cuda_op_ask(p, stream, e);
    if (rc == 0) rc = cuda_receive(s->drawn, p->drawn, (size_t)p->n * sizeof *s->drawn, stream, e);
    if (rc == 0) rc = cuda_receive(s->asked, p->asked, (size_t)p->n * sizeof *s->asked, stream, e);
    return rc == 0 ? cuda_wait(stream, e) : rc;
}

/* --- what came back ------------------------------------------------------------------------------------------------- */

/* The picked token's entry in the row as it came. */
static int raw_entry(const cuda_sampler *s, const cuda_drawn *d, int32_t row, int32_t token, float *x,
                     cuda_stream stream, err *e) {
    const cuda_likely *l = &s->likely[row];
    if (d->token == token) {
        *x = d->x;
        return 0;
    }
    for (int i = 0; i < l->n; i++) {
        if (l->token[i] != token) continue;
        *x = l->x[i];
        return 0;
    }
    int rc = cuda_receive(s->edits, s->picks.logits + (int64_t)row * s->width + token, sizeof *x, stream, e);
    if (rc == 0) rc = cuda_wait(stream, e);
    if (rc == 0) memcpy(x, s->edits, sizeof *x);
    return rc;
}

/* Step 1: from the row as it came. The list may be too short for the rivals: then the host does it all. */
static int logprobs(const cuda_sampler *s, const cuda_drawn *d, int32_t row, const sampling_row *r,
                    sampling_result *out, cuda_stream stream, err *e) {
    const cuda_likely *l = &s->likely[row];
    double             log_sum = (double)l->most + log(d->raw);
    float              x = 0;
    if (r->n_top > l->n && l->floor > -INFINITY) {
        out->token = SAMPLING_LEFT;
        return 0;
    }
    int rc = raw_entry(s, d, row, out->token, &x, stream, e);
    out->logprob = (float)((double)fminf(x, SAMPLING_LARGEST) - log_sum);
    for (int i = 0; i < r->n_top; i++) {
        bool there = i < l->n;
        r->top[i].token = there ? l->token[i] : -1;
        r->top[i].logprob = there ? (float)((double)fminf(l->x[i], SAMPLING_LARGEST) - log_sum) : -INFINITY;
    }
    return rc;
}

static int32_t decide(cuda_sampler *s, int k, const sampling_row *r) {
    const cuda_drawn  *d = &s->drawn[k];
    const cuda_likely *l = &s->asked[k];
    if (!draws_whole(r) || l->floor == -INFINITY) return pick_from(s, l, r, true, chain_cuts(r->params) ? d->sum : 0);
    return d->margin >= CHAIN_CLOSE ? d->token : SAMPLING_LEFT;
}

/* Asks for what has gathered, and decides. */
static int flush(cuda_sampler *s, const sampling_row *rows, sampling_result *out, cuda_stream stream, err *e) {
    int rc = s->picks.n ? ask(s, stream, e) : 0;
    for (int k = 0; k < s->picks.n && rc == 0; k++) {
        const sampling_row *r = &rows[s->who[k]];
        sampling_result    *to = &out[s->who[k]];
        to->token = decide(s, k, r);
        if (to->token >= 0 && wants_logprobs(r)) rc = logprobs(s, &s->drawn[k], s->asks[k].row, r, to, stream, e);
    }
    s->picks.n = s->picks.n_edited = s->picks.n_masks = s->n_edits = 0;
    return rc;
}

/* Whether the device can say more than its list. */
static bool worth_asking(const sampling_row *r) {
    const sampling_params *p = r->params;
    if (draws_whole(r) && chain_temperature(p) < SAMPLING_TINY_TEMPERATURE) return false;
    return r->mask || edits_of(r) || wants_logprobs(r) || draws_whole(r) || p->top_p < 1.0f;
}

int cuda_sampler_pick(cuda_sampler *s, const int32_t *out_rows, const sampling_row *rows, int n, bool asks,
                      sampling_result *out, cuda_stream stream, err *e) {
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        const sampling_row *r = &rows[i];
        const cuda_likely  *l = &s->likely[out_rows[i]];
        out[i] = (sampling_result){ .token = SAMPLING_LEFT, .guess = l->guess };
        if (!wants_logprobs(r) && (!draws_whole(r) || l->floor == -INFINITY))
            out[i].token = pick_from(s, l, r, false, 0);
        if (out[i].token != SAMPLING_LEFT || !asks || !worth_asking(r)) continue;
        if (!has_room(s, r)) rc = flush(s, rows, out, stream, e);
        if (rc == 0 && has_room(s, r)) put_ask(s, i, out_rows[i], r);
    }
    return rc < 0 ? rc : flush(s, rows, out, stream, e);
}
