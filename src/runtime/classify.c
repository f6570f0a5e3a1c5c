/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classes: what a text is (its mood, its subject), or how two texts stand to each other.
 *
 * A pooled row goes through the head of the model's file, a dense layer and one with an output per class, or only the
 * latter. The numbers become probabilities as config.json's problem_type says: of classes that exclude each other by
 * softmax, of others (and of one alone) by a sigmoid each; a regression's stay what they are. A head with one output
 * also scores pairs (rerank.c). Which head a file has, the names of its tensors say; what is done with its numbers and
 * is not known here is refused by name.
 */
#include "runtime/internal.h"

#include <math.h>
#include <stdio.h>
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

typedef struct names {
    const meta_value *list;   /* of a GGUF */
    const json_value *object; /* of config.json: by number */
    size_t            n;      /* 0: there are none */
} names;

static names find_names(const runtime *r) {
    char  key[96];
    names out = { .object = json_get(model_file_config(r->file), "id2label") };
    snprintf(key, sizeof key, "%s.classifier.output_labels", model_file_arch(r->file) ? model_file_arch(r->file) : "");
    if (model_file_format(r->file) == MODEL_GGUF) out.list = model_file_meta(r->file, key);
    if (out.list) out.n = out.list->count;
    if (!out.list && json_is(out.object, JSON_K_OBJECT)) out.n = out.object->u.object.count;
    return out;
}

static view label_of(const names *n, int i, char *room, size_t bytes) {
    view text = { "", 0 };
    if (meta_at_string(n->list, (size_t)i, &text)) return text;
    snprintf(room, bytes, "%d", i);
    const json_value *v = json_get(n->object, room);
    if (json_is(v, JSON_K_STRING)) return v->u.string;
    return (view){ room, (size_t)snprintf(room, bytes, "LABEL_%d", i) };
}

static int read_labels(runtime *r, err *e) {
    names n = find_names(r);
    char  room[32];
    str   s;
    if (n.n && n.n != (size_t)r->classes.n_classes)
        return err_set(e, ERR_FORMAT, "id2label: %zu names for %d classes", n.n, r->classes.n_classes);
    str_init(&s);
    str_push(&s, '[');
    for (int i = 0; i < r->classes.n_classes; i++) {
        view label = label_of(&n, i, room, sizeof room);
        if (label.len > MAX_LABEL) {
            str_deinit(&s);
            return err_set(e, ERR_LIMIT, "id2label: the name of class %d is too long", i);
        }
        if (i) str_push(&s, ',');
        str_put_json(&s, label.data, label.len);
    }
    str_push(&s, ']');
    char *kept = str_ok(&s) ? arena_strndup(&r->mem, str_cstr(&s), s.len) : NULL;
    r->classes.labels = (view){ kept, s.len };
    str_deinit(&s);
    return kept ? 0 : err_set_nomem(e);
}

int classify_open(runtime *r, err *e) {
    int head = find_head(r), rc;
    if (head < 0) return 0;
    if ((rc = read_pooling(r, head, e)) < 0 || (rc = read_layers(r, head, e)) < 0) return rc;
    if ((rc = read_ends(r, e)) < 0) return rc;
    return read_labels(r, e);
}

/* --- asking --- */

int classify_prompt(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    const tok *t = chat_tokenizer(r->chat);
    if (!r->classes.n_layers) return err_set(e, ERR_UNSUPPORTED, "classify: this model has no classification head");
    if (q->pair)
        return tok_encode_pair(t, q->text, q->suffix, (size_t)engine_context(r->engine), &out->ids, &out->second, e);
    return tok_encode(t, q->text.len ? q->text.data : "", q->text.len, TOK_ADD_SPECIAL, &out->ids, e);
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
