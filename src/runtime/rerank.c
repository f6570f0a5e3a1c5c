/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranking: how well a document answers a query.
 *
 * An encoder whose classification head (classify.c) has one output reads both as one input and gives a number; what
 * is done with it (a sigmoid, as a rule) its config.json may say. Models of Qwen3-Reranker's kind are asked in a
 * fixed form whether the document meets the query; the score is the share of "yes" in what it would say next, "yes"
 * and "no" alone. Two rows of its head are all that takes: the last hidden state is multiplied with them here. A
 * GGUF carries the form (tokenizer.chat_template.rerank, with {query} and {document}) and often the two rows
 * (cls.output.weight); a directory is known by its name and has the published form.
 */
#include "runtime/internal.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOLING_RANK = 4 };

static const char published[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. "
    "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search "
    "query, "
    "retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

/* --- opening --- */

static view find_form(const model_file *m) {
    char    key[96];
    int64_t type = 0;
    view    text = { "", 0 };
    snprintf(key, sizeof key, "%s.pooling_type", model_file_arch(m) ? model_file_arch(m) : "");
    if (model_file_format(m) != MODEL_GGUF)
        return strcasestr(model_file_path(m), "qwen3-reranker") ? view_of(published) : text;
    if (!meta_int(model_file_meta(m, key), &type) || type != POOLING_RANK) return text;
    return meta_string(model_file_meta(m, "tokenizer.chat_template.rerank"), &text) ? text : (view){ "", 0 };
}

static bool read_row(const model_tensor *t, int64_t row, int64_t n, float *out) {
    size_t bytes;
    if (t->dims[0] != n || row < 0 || row >= t->dims[1] || !tensor_row_bytes(t->type, n, &bytes)) return false;
    return bytes <= t->bytes / (size_t)t->dims[1] && tensor_dequant_row(t->type, t->data + (size_t)row * bytes, out, n);
}

/* The matrix that makes the logits, as the tape has it: tied or not, whatever its type. */
static const tensor_mat *head_of(const nn_tape *t) {
    for (int i = t->n_ops - 1; i >= 0; i--) {
        if (t->ops[i].kind == NN_OP_LINEAR && t->ops[i].out == t->logits) return t->ops[i].u.linear.w->at;
    }
    return NULL;
}

static bool read_rows(runtime *r, int64_t n) {
    const model_tensor *own = model_file_tensor(r->file, "cls.output.weight");
    const tok          *t = chat_tokenizer(r->chat);
    if (own) return read_row(own, 0, n, r->rank_rows) && read_row(own, 1, n, r->rank_rows + n);
    const tensor_mat *head = head_of(r->model->tape);
    int64_t           yes = tok_find(t, "yes", 3), no = tok_find(t, "no", 2);
    if (!head || head->cols != n || yes < 0 || no < 0 || yes >= head->rows || no >= head->rows) return false;
    tensor_mat_dequant_row(head, 0, yes, r->rank_rows);
    tensor_mat_dequant_row(head, 0, no, r->rank_rows + n);
    return true;
}

int rerank_open(runtime *r, err *e) {
    view    form = find_form(r->file);
    int64_t n = engine_embedding_size(r->engine);
    char   *text = form.len ? arena_strndup(&r->mem, form.data, form.len) : NULL;
    if (form.len && !text) return err_set_nomem(e);
    if (!text || !strstr(text, "{query}") || !strstr(strstr(text, "{query}"), "{document}")) return 0;
    r->rank_rows = arena_calloc(&r->mem, (size_t)n, 2 * sizeof *r->rank_rows);
    if (!r->rank_rows) return err_set_nomem(e);
    if (read_rows(r, n)) r->rank_form = text;
    return 0;
}

/* --- asking --- */

/* What the form says around query and document is read with its special tokens; they themselves, and what stands with
 * them in the same turn, are plain text. */
int rerank_prompt(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    const tok *t = chat_tokenizer(r->chat);
    if (classify_scores(r)) return classify_pair(r, q, out, e);
    if (!r->rank_form && r->classes.why) return err_set(e, ERR_UNSUPPORTED, "rerank: %s", r->classes.why);
    if (!r->rank_form) return err_set(e, ERR_UNSUPPORTED, "rerank: this model has no ranking head");
    const char *query = strstr(r->rank_form, "{query}"), *document = strstr(query, "{document}");
    const char *begin = r->rank_form, *end = strstr(document, "<|");
    for (const char *p = begin; (p = strstr(p, "|>")) && p < query; p += 2) begin = p + 2;
    if (!end) end = document + strlen(document);
    str plain;
    str_init(&plain);
    str_append(&plain, begin, (size_t)(query - begin));
    str_append(&plain, q->text.data, q->text.len);
    str_append(&plain, query + 7, (size_t)(document - query - 7));
    str_append(&plain, q->suffix.data, q->suffix.len);
    str_append(&plain, document + 10, (size_t)(end - document - 10));
    int rc = str_ok(&plain) ? 0 : err_set_nomem(e);
    if (rc == 0) rc = tok_encode(t, r->rank_form, (size_t)(begin - r->rank_form), TOK_PARSE_SPECIAL, &out->ids, e);
    if (rc == 0) rc = tok_encode(t, str_cstr(&plain), plain.len, 0, &out->ids, e);
    if (rc == 0) rc = tok_encode(t, end, strlen(end), TOK_PARSE_SPECIAL, &out->ids, e);
    str_append(&out->text, r->rank_form, (size_t)(begin - r->rank_form));
    str_append(&out->text, str_cstr(&plain), plain.len);
    str_puts(&out->text, end);
    str_deinit(&plain);
    return rc == 0 && !str_ok(&out->text) ? err_set_nomem(e) : rc;
}

engine_pooling rerank_pooling(const runtime *r) { return classify_scores(r) ? r->classes.pooling : ENGINE_POOL_LAST; }

float rerank_score(const runtime *r, const float *hidden, int n, float *scratch) {
    double yes = 0, no = 0;
    if (classify_scores(r)) return classify_score(r, hidden, scratch);
    for (int i = 0; i < n; i++) {
        yes += (double)hidden[i] * (double)r->rank_rows[i];
        no += (double)hidden[i] * (double)r->rank_rows[n + i];
    }
    return (float)(1 / (1 + exp(no - yes)));
}
