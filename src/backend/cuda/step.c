/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on the executor's stream: the batch goes up in one copy, ops are started, an event ends each. */
#include "backend/cuda/cuda.h"

#include "tensor/codec.h"

#include <string.h>

/* Steps of up to this many sequences with a token each are recorded. */
enum { GRAPH_TOKENS = 256, SEND_ROWS = 512 };

/* What every call does first. */
int cuda_enter(cuda_exec *x, err *e) {
    if (x->lost) return err_set(e, ERR_LOST, "the CUDA device was lost");
    return cuda_device_use(x->device.number, e);
}

/* And last. */
int cuda_leave(cuda_exec *x, int rc) {
    if (rc == ERR_LOST) x->lost = true;
    return rc;
}

/* --- the batch ---------------------------------------------------------------------------------------------------- */

static int32_t *put(int32_t **at, const int32_t *from, int n, size_t room) {
    int32_t *here = *at;
    if (from) memcpy(here, from, (size_t)n * sizeof *here);
    *at += room;
    return here;
}

/* Positions behind the last one that any row sees. */
static int longest(const nn_batch *b) {
    int most = 1;
    for (int s = 0; s < b->n_seq; s++) most = b->kv_len[s] > most ? b->kv_len[s] : most;
    return most;
}

/* The page tables, no wider than this batch needs; returns the block's end. */
static int32_t *put_pages(cuda_exec *x, int32_t *at) {
    const nn_batch *b = &x->batch;
    int             stride = (longest(b) + x->x.options.limits.page_tokens - 1) / x->x.options.limits.page_tokens;
    x->block[0] = stride;
    for (int g = 0; g < x->x.groups.n; g++) {
        x->block[1 + g] = (int32_t)(at - x->block);
        for (int s = 0; s < b->n_seq && b->pages[g]; s++) {
            int n = (b->kv_len[s] - 1) / x->x.options.limits.page_tokens + 1;
            memcpy(at, b->pages[g] + (size_t)s * (size_t)b->pages_stride, (size_t)n * sizeof *at);
            at += stride;
        }
    }
    return at;
}

static const int32_t *there(const cuda_exec *x, const int32_t *p) {
    return (const int32_t *)(const void *)(x->heap + x->areas.block) + (p - x->block);
}

/* Rows of each sequence in tiles; returns how many. */
static int put_tiles(const nn_batch *b, int32_t *to) {
    int n = 0;
    for (int s = 0; s < b->n_seq; s++) {
        for (int t = b->q_start[s]; t < b->q_start[s + 1]; t += CUDA_TILE_TOKENS) to[n++] = t;
    }
    return n;
}

/* Tokens, those to be guessed as ~ of their list; and how the next ones are guessed. Returns the end. */
static int32_t *put_tokens(cuda_exec *x, int32_t *at) {
    const nn_batch  *b = &x->batch;
    const nn_limits *l = &x->x.options.limits;
    x->tokens_at = (size_t)(at - x->block);
    for (int t = 0; t < b->n_tok; t++) at[t] = b->ahead && b->ahead[t] >= 0 ? ~b->ahead[t] : b->token[t];
    at += l->max_tokens;
    x->guess_at = (size_t)(at - x->block);
    for (int i = 0; i < b->n_out - b->n_hidden; i++) {
        cuda_guess guess = cuda_sampler_guess(b->guess ? &b->guess[i] : NULL);
        memcpy(at + (size_t)i * (sizeof guess / sizeof *at), &guess, sizeof guess);
    }
    return at + (size_t)(l->max_logits ? l->max_logits : l->max_outputs) * (sizeof(cuda_guess) / sizeof *at);
}

static int send_block(cuda_exec *x, err *e) {
    const nn_batch  *b = &x->batch;
    const nn_limits *l = &x->x.options.limits;
    int32_t         *at = put_tokens(x, x->block + 8);
    int32_t         *pos = put(&at, b->pos, b->n_tok, (size_t)l->max_tokens);
    int32_t         *seq_of = put(&at, b->seq_of, b->n_tok, (size_t)l->max_tokens);
    int32_t         *row_end = put(&at, b->row_end, b->n_tok, (size_t)l->max_tokens);
    int32_t         *q_start = put(&at, b->q_start, b->n_seq + 1, (size_t)l->max_seqs + 1);
    int32_t         *slot = put(&at, l->n_slots ? b->state_slot : NULL, b->n_seq, (size_t)l->max_seqs);
    int32_t         *out_rows = put(&at, b->out_rows, b->n_out, (size_t)l->max_outputs);
    int32_t         *begin = b->row_begin ? put(&at, b->row_begin, b->n_tok, (size_t)l->max_tokens) : NULL;
    int32_t         *axes =
        b->pos_axes ? put(&at, b->pos_axes, b->n_axes * b->n_tok, (size_t)b->n_axes * (size_t)l->max_tokens) : NULL;
    int32_t *given = b->embd && cuda_deep_width(x) ? put(&at, NULL, 0, (size_t)l->max_tokens) : NULL;
    int32_t *tiles = at;
    int      n_tiles = put_tiles(b, tiles);
    at += n_tiles;
    for (int t = 0; t < b->n_tok && !b->row_end; t++) row_end[t] = b->pos[t] + 1;
    for (int t = 0; given && t < b->n_tok; t++) given[t] = b->embd[t] != NULL;
    at = put_pages(x, at);
    x->on_device = (cuda_batch){ .block = there(x, x->block),
                                 .pos = there(x, pos),
                                 .seq_of = there(x, seq_of),
                                 .row_end = there(x, row_end),
                                 .row_begin = begin ? there(x, begin) : NULL,
                                 .axes = axes ? there(x, axes) : NULL,
                                 .given = given ? there(x, given) : NULL,
                                 .q_start = there(x, q_start),
                                 .slot = there(x, slot),
                                 .out_rows = there(x, out_rows),
                                 .tiles = there(x, tiles),
                                 .n_tiles = n_tiles,
                                 .n_tok = b->n_tok,
                                 .n_seq = b->n_seq,
                                 .n_out = b->n_out,
                                 .page_tokens = l->page_tokens };
    x->sampler.picks.guess = (const cuda_guess *)(const void *)there(x, x->block + x->guess_at);
    return cuda_send(x->heap + x->areas.block, x->block, (size_t)(at - x->block) * sizeof *at, x->stream, e);
}

/* The row of its table that an op takes for token t of the batch. */
static int64_t embed_row(const nn_batch *b, const nn_op *op, int t) {
    bool    given = b->embd && b->embd[t];
    int64_t id = op->kind == NN_OP_EMBED       ? (given ? 0 : b->token[t])
                 : op->kind == NN_OP_EMBED_POS ? (int64_t)b->pos[t] + op->u.embed.offset
                 : b->segment                  ? b->segment[t]
                                               : 0;
    return id < 0 ? 0 : id < op->u.embed.table->rows ? id : op->u.embed.table->rows - 1;
}

/* Rows as the file has them; the op makes them f32. */
static int send_raw(cuda_exec *x, const cuda_embed *m, err *e) {
    const nn_batch   *b = &x->batch;
    const nn_op      *op = &x->x.model->tape->ops[m->op];
    const tensor_mat *table = op->u.embed.table->at;
    size_t            bytes = table->row_bytes;
    for (int t = 0; t < b->n_tok; t++)
        memcpy((uint8_t *)m->host + (size_t)t * bytes,
               (const uint8_t *)table->data + (size_t)embed_row(b, op, t) * bytes, bytes);
    return cuda_send(x->heap + m->raw_at, m->host, (size_t)b->n_tok * bytes, x->stream, e);
}

/* The row of a table for token t; a supplied one is taken as it is. */
static void make_row(const nn_batch *b, const nn_op *op, int t, float *to) {
    const nn_mat *table = op->u.embed.table;
    if (op->kind == NN_OP_EMBED && b->embd && b->embd[t] && !op->u.embed.by_token) {
        if (b->embd[t] != to) memcpy(to, b->embd[t], (size_t)table->cols * sizeof *to);
        return;
    }
    tensor_mat_dequant_row(table->at, 0, embed_row(b, op, t), to);
    for (int64_t i = 0; i < table->cols && op->u.embed.scale != 1.0f; i++) to[i] *= op->u.embed.scale;
}

/* Rows of a table by token or position; those that are made are under way while others follow. */
static int send_embed(cuda_exec *x, const cuda_embed *m, err *e) {
    const nn_batch *b = &x->batch;
    const nn_op    *op = &x->x.model->tape->ops[m->op];
    size_t          cols = (size_t)op->u.embed.table->cols;
    if (x->raw && m->there) return 0;
    if (b->from) {
        const cuda_exec *from = (const cuda_exec *)b->from;
        nn_buf           hidden = nn_fetch_buf(from->x.model->tape, NN_FETCH_HIDDEN);
        return cuda_copy_within(x->heap + m->at, cuda_buf(from, hidden), (size_t)b->n_tok * cols * sizeof(float),
                                x->stream, e);
    }
    if (x->raw && m->raw_at) return send_raw(x, m, e);
    for (int t = 0, sent = 0, rc; t < b->n_tok; t++) {
        make_row(b, op, t, m->host + (size_t)t * cols);
        if (t + 1 < b->n_tok && t + 1 - sent < SEND_ROWS) continue;
        rc = cuda_send(x->heap + m->at + (size_t)sent * cols * sizeof(float), m->host + (size_t)sent * cols,
                       (size_t)(t + 1 - sent) * cols * sizeof(float), x->stream, e);
        if (rc < 0) return rc;
        sent = t + 1;
    }
    return 0;
}

static void forget(cuda_exec *x) {
    x->image_of = x->sorted_of = 0;
    x->norm_at = 0;
    memset(x->rope_made, 0, sizeof x->rope_made);
}

/* Guesses are those of the step under way, which has the block and the lists of this turn: not where a step behind it
 * failed and took them. */
static int check_ahead(const cuda_exec *x, const nn_batch *b, err *e) {
    int n = x->n_under_way ? x->batch.n_out - x->batch.n_hidden : 0;
    if (x->n_under_way > (b->ahead ? 1 : 0) || x->ticket_of[!x->turn])
        return err_set(e, ERR_ARG, "a step is under way");
    for (int t = 0; b->ahead && t < b->n_tok; t++) {
        if (b->ahead[t] >= n)
            return err_set(e, ERR_ARG, "row %d goes on from row %d of logits; there are %d", t, b->ahead[t], n);
    }
    return 0;
}

/* What is refused has changed nothing. */
static int check(const cuda_exec *x, const nn_batch *b, err *e) {
    int rc = nn_exec_check(&x->x, b, e);
    if (rc == 0) rc = check_ahead(x, b, e);
    if (rc == 0 && b->from) rc = cuda_check_from(x, b, e);
    return rc < 0 ? rc : cuda_adapt_check(x, b, e);
}

static int begin(cuda_exec *x, const nn_batch *b, err *e) {
    int rc = check(x, b, e);
    if (rc < 0) return rc;
    x->batch = *b;
    x->raw = !b->embd && !b->from;
    x->turn = !x->turn;
    x->block = x->blocks[x->turn];
    forget(x);
    int n = (longest(b) + CUDA_ATTN_CHUNK - 1) / CUDA_ATTN_CHUNK;
    for (x->chunks = 1; x->chunks < n;) x->chunks *= 2; /* few different recordings */
    rc = cuda_moves_meet(x, b, e);
    if (rc == 0) rc = cuda_adapt_begin(x, e);
    if (rc == 0) rc = send_block(x, e);
    if (rc == 0) rc = cuda_deep_send(x, e);
    for (int i = 0; i < x->n_embeds && rc == 0; i++) rc = send_embed(x, &x->embeds[i], e);
    return rc;
}

/* The executor's own ops; what goes together does so up to one that is somebody else's. */
static int run(cuda_exec *x, int first_op, int end_op, err *e) {
    for (int i = first_op, end = first_op, n; i < end_op; i += n) {
        if (end < i) end = i;
        while (end < end_op && nn_exec_runs(&x->x.options, end)) end++; /* goes on from where it stopped */
        n = end > i ? cuda_run_ops(x, i, end, e) : 1;
        if (n < 0) return n;
    }
    return 0;
}

/* Rows of logits that the executor makes. */
static int64_t logits_rows(const cuda_exec *x) {
    const nn_tape *t = x->x.model->tape;
    return t->logits && x->x.options.end_op == t->n_ops ? cuda_buf_rows(x, t->logits) : 0;
}

/* All ops, and the likeliest tokens where the head is among them. */
static int run_all(cuda_exec *x, err *e) {
    x->whole = true;
    int rc = run(x, x->x.options.first_op, x->x.options.end_op, e);
    x->whole = false;
    return rc < 0 ? rc : cuda_sampler_step(&x->sampler, logits_rows(x), x->stream, e);
}

int cuda_begin(nn_exec *base, const nn_batch *b, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    int        rc = cuda_enter(x, e);
    return rc < 0 ? rc : cuda_leave(x, begin(x, b, e));
}

int cuda_run(nn_exec *base, int first_op, int end_op, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    int        rc = cuda_enter(x, e);
    if (rc == 0) rc = run(x, first_op, end_op, e);
    if (rc == 0) rc = cuda_wait(x->stream, e);
    return cuda_leave(x, rc);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* The recording for batches of this one's sizes; NULL: not worth one. */
static cuda_step *step_of(cuda_exec *x) {
    const nn_batch *b = &x->batch;
    if (b->n_tok > (x->adapt.on ? CUDA_ADAPT_SINGLE : GRAPH_TOKENS) || b->n_tok != b->n_seq || b->row_begin)
        return NULL;
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        cuda_step *s = &x->steps[i];
        if (s->seen && s->n_tok == b->n_tok && s->n_out == b->n_out && s->n_hidden == b->n_hidden &&
            s->chunks == x->chunks && s->raw == x->raw && s->ends == (b->row_end != NULL) &&
            s->adapted == x->adapt.on && s->n_axes == (b->pos_axes ? b->n_axes : 0))
            return s;
    }
    /* A size that came once gives way before a recording does. */
    int at = x->next_step;
    for (int i = 0; i < CUDA_GRAPHS && x->steps[at].graph; i++) at = (at + 1) % CUDA_GRAPHS;
    cuda_step *s = &x->steps[at];
    x->next_step = (at + 1) % CUDA_GRAPHS;
    cuda_graph_free(s->graph);
    *s = (cuda_step){ .n_tok = b->n_tok,
                      .n_seq = b->n_seq,
                      .n_out = b->n_out,
                      .n_hidden = b->n_hidden,
                      .chunks = x->chunks,
                      .raw = x->raw,
                      .ends = b->row_end != NULL,
                      .adapted = x->adapt.on,
                      .n_axes = b->pos_axes ? b->n_axes : 0 };
    return s;
}

void cuda_steps_forget(cuda_exec *x) {
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        if (!x->steps[i].adapted) continue;
        cuda_graph_free(x->steps[i].graph);
        x->steps[i] = (cuda_step){ 0 };
    }
}

/* Records the ops; an error leaves no recording behind. */
static int record(cuda_exec *x, cuda_step *s, err *e) {
    int rc = cuda_graph_begin(x->stream, e);
    if (rc < 0) return rc;
    rc = run_all(x, e);
    cuda_graph graph = NULL;
    int        rc2 = cuda_graph_end(&graph, x->stream, rc < 0 ? NULL : e);
    if (rc == 0) rc = rc2;
    if (rc == 0)
        s->graph = graph;
    else
        cuda_graph_free(graph);
    return rc;
}

/* The second step of a size is recorded: sizes that come once cost nothing extra. */
static int run_step(cuda_exec *x, err *e) {
    cuda_step *s = step_of(x);
    int        rc = 0;
    bool       again = s && s->seen;
    if (s) s->seen = true;
    if (!again) return run_all(x, e);
    if (!s->graph) rc = record(x, s, e);
    if (rc == 0) rc = cuda_graph_run(s->graph, x->stream, e);
    if (rc != ERR_NOMEM) return rc;
    forget(x); /* a recording takes memory of the device, its ops do not */
    return run_all(x, e);
}

int cuda_give_ticket(cuda_exec *x, nn_ticket *ticket, err *e) {
    int rc = cuda_event_record(x->events[(x->last + 1) % CUDA_EVENTS], x->stream, e);
    if (rc == 0) *ticket = ++x->last;
    return rc;
}

/* Rows that ops in front of this part have left. */
static int send_entry(cuda_exec *x, const nn_batch *b, err *e) {
    int rc = 0;
    for (int i = 0; i < b->n_entry && rc == 0; i++) {
        nn_buf to = b->entry[i].buf;
        size_t bytes = (size_t)(cuda_buf_rows(x, to) * cuda_info(x, to)->width) * sizeof(float);
        rc = cuda_send(cuda_buf(x, to), b->entry[i].rows, bytes, x->stream, e);
    }
    return rc;
}

int cuda_submit(nn_exec *base, const nn_batch *b, nn_ticket *step, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    int        rc = cuda_enter(x, e);
    if (rc == 0) rc = begin(x, b, e);
    if (rc == 0) rc = send_entry(x, b, e);
    uint64_t number = x->n_steps + 1; /* times are taken between steps that were started */
    if (rc == 0) rc = cuda_event_record(x->began[number % CUDA_TIMES], x->stream, e);
    if (rc == 0) rc = run_step(x, e);
    if (rc == 0) rc = cuda_event_record(x->ended[number % CUDA_TIMES], x->stream, e);
    if (rc == 0) rc = cuda_sampler_send(&x->sampler, logits_rows(x), x->turn, x->stream, e);
    if (rc == 0) rc = cuda_give_ticket(x, step, e);
    if (rc < 0) return cuda_leave(x, rc);
    x->ticket_of[x->turn] = *step;
    x->number_of[x->turn] = x->n_steps = number;
    x->n_under_way++;
    return 0;
}

/* A step has ended: its lists are the ones to pick from. */
static void end_step(cuda_exec *x, int turn) {
    double   idle = 0;
    uint64_t n = x->number_of[turn];
    x->n_under_way--;
    x->ticket_of[turn] = 0;
    x->sampler.likely = x->sampler.lists[turn];
    x->x.idle_s = -1;
    if (n > 1 && cuda_event_between(&idle, x->ended[(n - 1) % CUDA_TIMES], x->began[n % CUDA_TIMES], NULL) == 0)
        x->x.idle_s = idle;
}

int cuda_wait_for(nn_exec *base, nn_ticket ticket, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    int        rc = cuda_enter(x, e);
    if (rc < 0) return rc;
    if (ticket == 0 || ticket > x->last)
        return err_set(e, ERR_ARG, "ticket %llu was never given out", (unsigned long long)ticket);
    rc = cuda_moves_wait(x, ticket, e);
    if (rc == 0) rc = cuda_event_wait(x->events[ticket % CUDA_EVENTS], e);
    for (int i = 0; i < 2; i++) {
        if (x->ticket_of[i] == ticket) end_step(x, i);
    }
    return cuda_leave(x, rc);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static int copy_out(cuda_exec *x, float *to, const float *from, size_t bytes, err *e) {
    int rc = 0;
    for (size_t at = 0; at < bytes && rc == 0; at += CUDA_STAGING) {
        size_t n = bytes - at < CUDA_STAGING ? bytes - at : CUDA_STAGING;
        rc = cuda_receive(x->staging, (const uint8_t *)from + at, n, x->stream, e);
        if (rc == 0) rc = cuda_wait(x->stream, e);
        if (rc == 0) memcpy((uint8_t *)to + at, x->staging, n);
    }
    return rc;
}

int cuda_fetch(nn_exec *base, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e) {
    cuda_exec     *x = (cuda_exec *)base;
    const nn_tape *t = base->model->tape;
    nn_buf         b = nn_fetch_buf(t, what);
    int64_t        width = t->bufs[b].width, rows = cuda_buf_rows(x, b);
    int            rc = cuda_enter(x, e);
    if (rc < 0) return rc;
    if (first < 0 || n < 0 || n > rows || first > rows - n)
        return err_set(e, ERR_ARG, "%lld rows from row %lld on; there are %lld", (long long)n, (long long)first,
                       (long long)rows);
    return cuda_leave(x, copy_out(x, to, cuda_buf(x, b) + first * width, (size_t)(n * width) * sizeof *to, e));
}

/* Of a step that another one follows the logits are gone. */
int cuda_sample(nn_exec *base, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    int        rc = cuda_enter(x, e);
    bool       last = x->sampler.likely == x->sampler.lists[x->turn];
    return rc < 0 ? rc : cuda_leave(x, cuda_sampler_pick(&x->sampler, out_rows, rows, n, last, out, x->stream, e));
}

static int check_buf(const cuda_exec *x, nn_buf b, size_t *bytes, err *e) {
    const nn_tape *t = x->x.model->tape;
    if (b <= 0 || b >= t->n_bufs) return err_set(e, ERR_ARG, "buffer %d of %d", b, t->n_bufs - 1);
    *bytes = (size_t)(cuda_buf_rows(x, b) * t->bufs[b].width) * sizeof(float);
    return 0;
}

int cuda_read(nn_exec *base, nn_buf b, float *to, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    size_t     bytes = 0;
    int        rc = cuda_enter(x, e);
    if (rc == 0) rc = check_buf(x, b, &bytes, e);
    return rc < 0 ? rc : cuda_leave(x, copy_out(x, to, cuda_buf(x, b), bytes, e));
}

int cuda_write(nn_exec *base, nn_buf b, const float *from, err *e) {
    cuda_exec *x = (cuda_exec *)base;
    size_t     bytes = 0;
    int        rc = cuda_enter(x, e);
    if (rc == 0) rc = check_buf(x, b, &bytes, e);
    if (rc == 0) rc = cuda_wait(x->stream, e);
    if (rc == 0) rc = cuda_copy_in(cuda_buf(x, b), from, bytes, e);
    if (x->image_of == b) x->image_of = 0;
    if (x->sorted_of == b) x->sorted_of = 0;
    return cuda_leave(x, rc);
}
