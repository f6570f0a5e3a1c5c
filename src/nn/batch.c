/* SPDX-License-Identifier: Apache-2.0 */
/* Checking a batch before a backend trusts it. */
#include "nn/batch.h"

#include "nn/tape.h"

static int check_pages(const nn_batch *b, const nn_limits *l, const nn_groups *g, int s, err *e) {
    int32_t first = b->pos[b->q_start[s]], len = b->kv_len[s];
    for (int k = 0; k < g->n; k++) {
        int32_t lo = g->window[k] && first - g->window[k] + 1 > 0 ? first - g->window[k] + 1 : 0;
        if (!g->window[k]) lo = 0;
        if (!b->pages[k]) return err_set(e, ERR_ARG, "the batch has no page table for group %d", k);
        for (int32_t p = lo / l->page_tokens; p <= (len - 1) / l->page_tokens; p++) {
            int32_t page = b->pages[k][(size_t)s * (size_t)b->pages_stride + (size_t)p];
            if (page < 0 || page >= l->n_pages)
                return err_set(e, ERR_ARG, "sequence %d: page %d of group %d is %d; there are %d", s, p, k, page,
                               l->n_pages);
        }
    }
    return 0;
}

static int check_seq(const nn_batch *b, const nn_limits *l, const nn_groups *g, int s, err *e) {
    int32_t r0 = b->q_start[s], r1 = b->q_start[s + 1];
    if (r1 <= r0 || r1 > b->n_tok)
        return err_set(e, ERR_ARG, "sequence %d has rows %d to %d of %d", s, r0, r1, b->n_tok);
    for (int32_t t = r0; t < r1; t++) {
        if (b->seq_of[t] != s)
            return err_set(e, ERR_ARG, "row %d names sequence %d, but lies in %d", t, b->seq_of[t], s);
        if (b->pos[t] < 0 || b->pos[t] != b->pos[r0] + (t - r0))
            return err_set(e, ERR_ARG, "row %d has position %d", t, b->pos[t]);
    }
    if (g->whole && b->pos[r0] != 0)
        return err_set(e, ERR_ARG, "sequence %d begins at position %d; this model needs inputs whole", s, b->pos[r0]);
    if (b->kv_len[s] != b->pos[r1 - 1] + 1)
        return err_set(e, ERR_ARG, "sequence %d: length %d does not follow its last position %d", s, b->kv_len[s],
                       b->pos[r1 - 1]);
    if ((b->kv_len[s] - 1) / l->page_tokens >= (b->pages_stride < l->max_pages ? b->pages_stride : l->max_pages))
        return err_set(e, ERR_LIMIT, "sequence %d: %d positions are more than its page table holds", s, b->kv_len[s]);
    if (l->n_slots && (b->state_slot[s] < 0 || b->state_slot[s] >= l->n_slots))
        return err_set(e, ERR_ARG, "sequence %d: state slot %d of %d", s, b->state_slot[s], l->n_slots);
    return check_pages(b, l, g, s, e);
}

/* Which of the optional things a batch holds, as NN_BATCH_* bits. */
static unsigned nn_batch_holds(const nn_batch *b) {
    return (b->embd ? NN_BATCH_EMBD : 0u) | (b->row_end ? NN_BATCH_ROW_END : 0u) |
           (b->adapter ? NN_BATCH_ADAPTER : 0u) | (b->pos_axes || b->n_axes > 1 ? NN_BATCH_AXES : 0u) |
           (b->segment ? NN_BATCH_SEGMENT : 0u) | (b->row_begin ? NN_BATCH_ROW_BEGIN : 0u) |
           (b->from ? NN_BATCH_FROM : 0u);
}

unsigned nn_batch_for(const nn_tape *t, unsigned holds) {
    if ((holds & NN_BATCH_EMBD) && t->n_parts > 1) holds |= NN_BATCH_DEEP;
    if ((holds & NN_BATCH_ROW_END) && t->strict) holds |= NN_BATCH_STRICT;
    if ((holds & NN_BATCH_ROW_BEGIN) && t->windows) holds |= NN_BATCH_WIDE;
    return holds;
}

int nn_batch_allow(unsigned holds, unsigned can, err *e) {
    static const struct {
        unsigned    bit;
        const char *what;
    } rows[] = { { NN_BATCH_EMBD, "supplied embeddings are" },
                 { NN_BATCH_ROW_END, "spans that see themselves whole are" },
                 { NN_BATCH_ADAPTER, "adapters are" },
                 { NN_BATCH_AXES, "positions with several axes are" },
                 { NN_BATCH_SEGMENT, "pairs of texts are" },
                 { NN_BATCH_ROW_BEGIN, "spans that see nothing but themselves are" },
                 { NN_BATCH_DEEP, "embeddings that are supplied to several layers are" },
                 { NN_BATCH_STRICT, "spans that only some layers see whole are" },
                 { NN_BATCH_FROM, "rows of another executor are" },
                 { NN_BATCH_WIDE, "spans that are longer than a layer's window are" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (holds & rows[i].bit & ~can) return err_set(e, ERR_UNSUPPORTED, "%s not supported yet", rows[i].what);
    }
    return 0;
}

static int check_axes(const nn_batch *b, err *e) {
    if (!b->pos_axes && b->n_axes <= 1) return 0;
    if (!b->pos_axes || b->n_axes < 1 || b->n_axes > NN_MAX_AXES)
        return err_set(e, ERR_ARG, "positions with %d axes%s", b->n_axes, b->pos_axes ? "" : ", which are not there");
    for (int64_t i = 0; i < (int64_t)b->n_axes * b->n_tok; i++) {
        if (b->pos_axes[i] < 0)
            return err_set(e, ERR_ARG, "row %d: an axis at %d", (int)(i % b->n_tok), b->pos_axes[i]);
    }
    return 0;
}

/* Tokens, or rows of supplied embeddings in their place. */
static int check_inputs(const nn_batch *b, int n_vocab, err *e) {
    for (int t = 0; t < b->n_tok; t++) {
        bool known = !(b->embd && b->embd[t]) && !(b->ahead && b->ahead[t] >= 0);
        if (known && (b->token[t] < 0 || b->token[t] >= n_vocab))
            return err_set(e, ERR_ARG, "row %d: token %d; the vocabulary has %d", t, b->token[t], n_vocab);
        if (b->segment && (b->segment[t] < 0 || b->segment[t] > 1))
            return err_set(e, ERR_ARG, "row %d belongs to text %d of a pair", t, b->segment[t]);
        if (b->row_end && (b->row_end[t] <= b->pos[t] || b->row_end[t] > b->kv_len[b->seq_of[t]]))
            return err_set(e, ERR_ARG, "row %d at position %d sees up to %d", t, b->pos[t], b->row_end[t]);
        if (b->row_begin && (!b->row_end || b->row_begin[t] < 0 || b->row_begin[t] >= b->row_end[t]))
            return err_set(e, ERR_ARG, "row %d at position %d sees from %d on", t, b->pos[t], b->row_begin[t]);
    }
    return 0;
}

int64_t nn_batch_rows(const nn_batch *b, const nn_tape *t, nn_buf buf) {
    const nn_buf_info *i = &t->bufs[buf];
    int                outputs = i->rows == NN_ROWS_LOGITS ? b->n_out - b->n_hidden : b->n_out;
    return (int64_t)(i->rows == NN_ROWS_TOKENS ? b->n_tok : outputs) * i->mult;
}

int nn_batch_check(const nn_batch *b, const nn_tape *tape, const nn_limits *l, const nn_groups *g, int n_vocab,
                   unsigned can, err *e) {
    int rc;
    if (b->n_tok <= 0 || b->n_tok > l->max_tokens || b->n_seq <= 0 || b->n_seq > l->max_seqs || b->n_out < 0 ||
        b->n_out > l->max_outputs)
        return err_set(e, ERR_LIMIT, "a batch of %d tokens, %d sequences, %d outputs; at most %d, %d, %d fit", b->n_tok,
                       b->n_seq, b->n_out, l->max_tokens, l->max_seqs, l->max_outputs);
    int n_logits = b->n_out - b->n_hidden;
    if (b->n_hidden < 0 || n_logits < 0 || (l->max_logits && n_logits > l->max_logits))
        return err_set(e, ERR_LIMIT, "a batch of %d outputs, %d of them without logits; at most %d rows of logits fit",
                       b->n_out, b->n_hidden, l->max_logits ? l->max_logits : l->max_outputs);
    if ((rc = nn_batch_allow(nn_batch_for(tape, nn_batch_holds(b)), can, e)) < 0) return rc;
    if (b->q_start[0] != 0 || b->q_start[b->n_seq] != b->n_tok)
        return err_set(e, ERR_ARG, "the sequences do not cover the batch");
    for (int s = 0; s < b->n_seq; s++) {
        if ((rc = check_seq(b, l, g, s, e)) < 0) return rc;
    }
    if ((rc = check_inputs(b, n_vocab, e)) < 0 || (rc = check_axes(b, e)) < 0) return rc;
    for (int i = 0; i < b->n_entry; i++) {
        if (b->entry[i].buf <= 0 || b->entry[i].buf >= tape->n_bufs || !b->entry[i].rows)
            return err_set(e, ERR_ARG, "rows for buffer %d of %d", b->entry[i].buf, tape->n_bufs - 1);
    }
    for (int r = 0; r < b->n_out; r++) {
        if (b->out_rows[r] < 0 || b->out_rows[r] >= b->n_tok)
            return err_set(e, ERR_ARG, "output %d names row %d of %d", r, b->out_rows[r], b->n_tok);
    }
    return 0;
}
