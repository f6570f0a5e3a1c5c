/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classes: what a text is (its mood, its subject), or how two texts stand to each other.
 *
 * A pooled row goes through the head of the model's file, a dense layer and one with an output per class, or only the
 * latter. The numbers become probabilities as config.json's problem_type says: of classes that exclude each other by
 * softmax, of others (and of one alone) by a sigmoid each; a regression's stay what they are. A head with one output
 * also scores pairs (rerank.c). Which head a file has, the names of its tensors say; what is done with its numbers and
 * is not known here is refused by name, when somebody asks for it: the model is still good for everything else.
 */
#include "base/log.h"
#include "runtime/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CLASSES = 1 << 16, MAX_LABEL = 4096 };

/* Heads by the names of their tensors, as transformers and converters write them. */
static const struct {
    const char *dense, *out, *norm; /* dense and norm NULL: none */
    head_act    act;
    const char *field;      /* of config.json, that names another activation; NULL: there is none */
    const char *arch;       /* NULL: any */
    bool        gguf, last; /* last: of the last token, and pairs have no score */
} heads[] = {
    { "bert.pooler.dense", "classifier", NULL, HEAD_TANH, NULL, NULL, false, false },
    { "ernie.pooler.dense", "classifier", NULL, HEAD_TANH, NULL, NULL, false, false },
    { "albert.pooler", "classifier", NULL, HEAD_TANH, NULL, NULL, false, false },
    { "new.pooler.dense", "classifier", NULL, HEAD_TANH, NULL, NULL, false, false },
    { "pooler.dense", "classifier", NULL, HEAD_GELU, "pooler_hidden_act", "deberta-v2", false, false },
    { "pooler.dense", "classifier", NULL, HEAD_GELU, "pooler_hidden_act", "deberta", false, false },
    { "classifier.dense", "classifier.out_proj", NULL, HEAD_GELU, NULL, "electra", false, false },
    { "classifier.dense", "classifier.out_proj", NULL, HEAD_TANH, NULL, NULL, false, false },
    { "pre_classifier", "classifier", NULL, HEAD_RELU, NULL, NULL, false, false },
    { "head.dense", "classifier", "head.norm", HEAD_GELU, "classifier_activation", NULL, false, false },
    { "cls", "cls.output", "cls.norm", HEAD_GELU, NULL, NULL, true, false },
    { "cls", "cls.output", NULL, HEAD_TANH, NULL, NULL, true, false },
    { NULL, "score", NULL, HEAD_NONE, NULL, NULL, false, true },
};
enum { N_HEADS = sizeof heads / sizeof *heads };

static bool has(const model_file *m, const char *name) {
    char full[128];
    if (!name) return true;
    snprintf(full, sizeof full, "%s.weight", name);
    return model_file_tensor(m, full) != NULL;
}

/* A head of the same names may say something of every token, or choose among answers: "BertForTokenClassification". */
static bool is_other(const runtime *r) {
    const char *name = json_cstr(json_at(json_get(model_file_config(r->file), "architectures"), 0));
    return name && strstr(name, "For") && !strstr(name, "ForSequenceClassification");
}

static bool takes(const model_file *m, const char *name, int n) {
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    const model_tensor *t = model_file_tensor(m, full);
    return t && t->dims[0] == n;
}

static int find_head(const runtime *r) {
    bool        gguf = model_file_format(r->file) == MODEL_GGUF;
    const char *arch = model_file_arch(r->file);
    for (int i = 0; i < N_HEADS && !is_other(r); i++) {
        if (heads[i].gguf != gguf || (!heads[i].last && engine_generates(r->engine))) continue;
        if (heads[i].last && !takes(r->file, heads[i].out, engine_embedding_size(r->engine))) continue;
        if (heads[i].arch && (!arch || strcmp(arch, heads[i].arch) != 0)) continue;
        if (has(r->file, heads[i].dense) && has(r->file, heads[i].out) && has(r->file, heads[i].norm)) return i;
    }
    return -1;
}

/* --- what config.json says --- */

static int read_pooling(runtime *r, int head, err *e) {
    const char *pooling = json_cstr(json_get(model_file_config(r->file), "classifier_pooling"));
    r->classes.pooling = heads[head].last                          ? ENGINE_POOL_LAST
                         : pooling && strcmp(pooling, "mean") == 0 ? ENGINE_POOL_MEAN
                                                                   : ENGINE_POOL_CLS;
    if (pooling && strcmp(pooling, "mean") != 0 && strcmp(pooling, "cls") != 0)
        return err_set(e, ERR_UNSUPPORTED, "classifier_pooling: \"%.40s\" is not supported", pooling);
    return 0;
}

/* What is done with a pair's score, and what with the numbers of classes. */
static int read_ends(runtime *r, err *e) {
    static const char *const types[] = { "single_label_classification", "multi_label_classification", "regression" };
    const json_value        *c = model_file_config(r->file);
    const char              *type = json_cstr(json_get(c, "problem_type"));
    const char              *fn = json_cstr(json_get(json_get(c, "sentence_transformers"), "activation_fn"));
    if (!fn) fn = json_cstr(json_get(c, "sbert_ce_default_activation_function"));
    r->classes.act = HEAD_SIGMOID;
    r->classes.raw = type && strcmp(type, types[2]) == 0;
    r->classes.apart = r->classes.n_classes == 1 || (type && strcmp(type, types[1]) == 0);
    if (type && !r->classes.raw && strcmp(type, types[0]) != 0 && strcmp(type, types[1]) != 0)
        return err_set(e, ERR_UNSUPPORTED, "problem_type: \"%.40s\" is not supported", type);
    return fn ? embedding_activation(fn, &r->classes.act, e) : 0;
}

static int read_layers(runtime *r, int head, err *e) {
    class_head       *c = &r->classes;
    const json_value *config = model_file_config(r->file);
    const char       *act = heads[head].field ? json_cstr(json_get(config, heads[head].field)) : NULL;
    int               n = engine_embedding_size(r->engine), rc = 0, at = 0;
    double            eps = 1e-5;
    (void)json_number(json_get(config, "norm_eps"), &eps);
    if (act && strcmp(act, "gelu") != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: \"%.40s\" is not supported", heads[head].field, act);
    if (heads[head].dense) {
        if ((rc = head_read(&c->layers[at], r->file, heads[head].dense, n, heads[head].act, &r->mem, e)) < 0) return rc;
        if (heads[head].norm && (rc = head_norm(&c->layers[at], r->file, heads[head].norm, eps, &r->mem, e)) < 0)
            return rc;
        n = c->layers[at++].out;
    }
    if ((rc = head_read(&c->layers[at], r->file, heads[head].out, n, HEAD_NONE, &r->mem, e)) < 0) return rc;
    c->n_classes = c->layers[at].out;
    c->n_layers = at + 1;
    c->ranks = c->n_classes == 1 && !heads[head].last;
    if (c->n_classes > MAX_CLASSES)
        return err_set(e, ERR_LIMIT, "tensor %s.weight: %d classes are too many", heads[head].out, c->n_classes);
    for (int i = 0; i <= at; i++) { /* scratch is as wide */
        if (c->layers[i].out > r->embed.widest) r->embed.widest = c->layers[i].out;
    }
    return 0;
}

/* --- names --- */

/* The number of a class as id2label writes it; -1: it is none. */
static int class_of(view key, int n_classes) {
    int n = 0;
    if (key.len < 1 || key.len > 6 || (key.len > 1 && key.data[0] == '0')) return -1;
    for (size_t i = 0; i < key.len; i++) {
        if (key.data[i] < '0' || key.data[i] > '9') return -1;
        n = 10 * n + (key.data[i] - '0');
    }
    return n < n_classes ? n : -1;
}

/* One name for each class, of a GGUF's list or of config.json's object; data NULL: it has none. */
static int read_names(const runtime *r, view *names, err *e) {
    const char       *arch = model_file_arch(r->file);
    const meta_value *list = NULL;
    const json_value *object = json_get(model_file_config(r->file), "id2label");
    size_t            n = json_is(object, JSON_K_OBJECT) ? object->u.object.count : 0;
    int               n_classes = r->classes.n_classes;
    char              key[96];
    snprintf(key, sizeof key, "%s.classifier.output_labels", arch ? arch : "");
    if (model_file_format(r->file) == MODEL_GGUF && (list = model_file_meta(r->file, key))) n = list->count;
    if (n && n != (size_t)n_classes) return err_set(e, ERR_FORMAT, "id2label: %zu names for %d classes", n, n_classes);
    for (size_t i = 0; list && i < n; i++) {
        if (!meta_at_string(list, i, &names[i])) names[i] = (view){ NULL, 0 };
    }
    for (size_t i = 0; !list && i < n; i++) { /* of equal keys the last one counts */
        const json_member *m = &object->u.object.members[i];
        int                c = class_of(m->key, n_classes);
        if (c < 0) continue;
        names[c] = json_is(&m->value, JSON_K_STRING) ? m->value.u.string : (view){ NULL, 0 };
        if (json_is(&m->value, JSON_K_STRING) && names[c].len == 0) names[c].data = "";
    }
    for (int i = 0; i < n_classes; i++) {
        if (names[i].len > MAX_LABEL) return err_set(e, ERR_LIMIT, "id2label: the name of class %d is too long", i);
    }
    return 0;
}

static int put_labels(runtime *r, const view *names, err *e) {
    str s;
    str_init(&s);
    str_push(&s, '[');
    for (int i = 0; i < r->classes.n_classes; i++) {
        if (i) str_push(&s, ',');
        if (names[i].data)
            str_put_json(&s, names[i].data, names[i].len);
        else
            str_printf(&s, "\"LABEL_%d\"", i);
    }
    str_push(&s, ']');
    char *kept = str_ok(&s) ? arena_strndup(&r->mem, str_cstr(&s), s.len) : NULL;
    r->classes.labels = (view){ kept, s.len };
    str_deinit(&s);
    return kept ? 0 : err_set_nomem(e);
}

static int read_labels(runtime *r, err *e) {
    view *names = calloc((size_t)r->classes.n_classes, sizeof *names);
    int   rc = names ? read_names(r, names, e) : err_set_nomem(e);
    if (rc == 0) rc = put_labels(r, names, e);
    free(names);
    return rc;
}

static int read_head(runtime *r, int head, err *e) {
    int rc = read_pooling(r, head, e);
    if (rc == 0) rc = read_layers(r, head, e);
    if (rc == 0) rc = read_ends(r, e);
    return rc == 0 ? read_labels(r, e) : rc;
}

/* A model whose head is not known is still good for everything else. */
int classify_open(runtime *r, err *e) {
    int head = find_head(r), rc;
    err why = { 0 };
    if (head < 0 || (rc = read_head(r, head, &why)) == 0) return 0;
    r->classes = (class_head){ 0 };
    if (rc != ERR_UNSUPPORTED && rc != ERR_FORMAT && rc != ERR_LIMIT) {
        if (e) *e = why;
        return rc;
    }
    log_warn("runtime", "the model will not classify or rank: %s", why.msg);
    r->classes.why = arena_strndup(&r->mem, why.msg, strlen(why.msg));
    return r->classes.why ? 0 : err_set_nomem(e);
}

/* --- asking --- */

/* How many tokens a request may have. */
static int limit_of(const runtime *r, const runtime_request *q) {
    int all = engine_context(r->engine);
    return q->n_ctx > 0 && q->n_ctx < all ? q->n_ctx : all;
}

int classify_pair(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    const tok *t = chat_tokenizer(r->chat);
    view       none = { "", 0 };
    int        limit = limit_of(r, q);
    int        rc = tok_encode_pair(t, none, none, 0, &out->ids, &out->second, e);
    size_t     around = out->ids.count;
    if (rc == 0 && (size_t)limit < around + 2)
        return err_set(e, ERR_ARG, "a limit of %d tokens leaves nothing of two texts: %zu stand around them", limit,
                       around);
    return rc < 0 ? rc : tok_encode_pair(t, q->text, q->suffix, (size_t)limit, &out->ids, &out->second, e);
}

/* One that is too long is cut later (limit_context). */
static int classify_text(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    const tok *t = chat_tokenizer(r->chat);
    int        rc = q->truncate ? tok_encode(t, "", 0, TOK_ADD_SPECIAL, &out->ids, e) : 0, limit = limit_of(r, q);
    size_t     around = out->ids.count;
    if (rc == 0 && q->truncate && (size_t)limit <= around)
        return err_set(e, ERR_ARG, "a limit of %d tokens leaves nothing of a text: %zu stand around it", limit, around);
    out->ids.count = 0;
    return rc < 0 ? rc : tok_encode(t, q->text.len ? q->text.data : "", q->text.len, TOK_ADD_SPECIAL, &out->ids, e);
}

int classify_prompt(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    if (r->classes.why) return err_set(e, ERR_UNSUPPORTED, "classify: %s", r->classes.why);
    if (!r->classes.n_layers) return err_set(e, ERR_UNSUPPORTED, "classify: this model has no classification head");
    return q->pair ? classify_pair(r, q, out, e) : classify_text(r, q, out, e);
}

bool classify_scores(const runtime *r) { return r->classes.n_layers && r->classes.ranks; }

/* The numbers of the classes, in the second half of scratch where there are two layers, else in the first. */
static float *run(const runtime *r, const float *hidden, float *scratch, head_act last) {
    const class_head *c = &r->classes;
    float            *to = scratch;
    for (int i = 0; i < c->n_layers; i++) {
        head_layer l = c->layers[i];
        if (i == c->n_layers - 1) l.act = last;
        to = scratch + (i ? r->embed.widest : 0);
        head_run(&l, hidden, to);
        hidden = to;
    }
    return to;
}

float classify_score(const runtime *r, const float *hidden, float *scratch) {
    return *run(r, hidden, scratch, r->classes.act);
}

const float *classify_probs(const runtime *r, const float *hidden, float *scratch) {
    const class_head *c = &r->classes;
    float            *p = run(r, hidden, scratch, c->apart && !c->raw ? HEAD_SIGMOID : HEAD_NONE);
    double            most = -INFINITY, sum = 0;
    if (c->apart || c->raw) return p;
    for (int i = 0; i < c->n_classes; i++) most = fmax(most, (double)p[i]);
    for (int i = 0; i < c->n_classes; i++) sum += exp((double)p[i] - most);
    for (int i = 0; i < c->n_classes; i++) p[i] = (float)(exp((double)p[i] - most) / sum);
    return p;
}
