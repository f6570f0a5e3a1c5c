/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speculation as a model's settings ask for it: who drafts, the model's head for further tokens, and the file that was named
 * for drafting: a draft model with its check, or such a head.
 *
 * A draft model must have the same vocabulary, since its tokens are taken as they are: the same kind of tokenizer, ends and
 * texts. Files of one family are padded differently, so a few entries at the end may be missing in one of them, and the
 * first few, which are markers, may be named differently.
 */
#include "runtime/internal.h"

#include "base/file.h"
#include "base/log.h"
#include "bundle/tokenizer.h"
#include "models/list.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PADDING = 128, MARKERS = 5 };

static const char *const names[ENGINE_SPECULATE_COUNT] = { "off", "auto", "lookup", "draft", "mtp", "eagle" };

int runtime_speculate(const char *name, engine_speculate *out, err *e) {
    for (int i = 0; i < ENGINE_SPECULATE_COUNT; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (engine_speculate)i;
        return 0;
    }
    return err_set(e, ERR_ARG, "speculate: '%.40s' is not off, auto, lookup, draft, mtp or eagle", name);
}

static bool same_ends(const tok *a, const tok *b) {
    size_t         n, n_b;
    const int32_t *ends = tok_end_ids(a, &n);
    (void)tok_end_ids(b, &n_b);
    for (size_t i = 0; i < n; i++) {
        if (ends[i] < tok_count(b) && !tok_is_end(b, ends[i])) return false;
    }
    return n == 0 || n_b > 0;
}

/* Why one cannot draft for the other. */
static int check_vocabulary(const tok *model, const tok *draft, err *e) {
    int32_t a = tok_count(model), b = tok_count(draft), n = a < b ? a : b;
    if (strcmp(tok_kind(model), tok_kind(draft)) != 0)
        return err_set(e, ERR_UNSUPPORTED, "its tokenizer is %s, the model's is %s", tok_kind(draft), tok_kind(model));
    if (a - b > MAX_PADDING || b - a > MAX_PADDING)
        return err_set(e, ERR_UNSUPPORTED, "its vocabulary has %d tokens, the model's %d", b, a);
    for (int32_t i = MARKERS; i < n; i++) {
        view x = tok_text(model, i), y = tok_text(draft, i);
        if (x.len != y.len || memcmp(x.data, y.data, x.len) != 0)
            return err_set(e, ERR_UNSUPPORTED, "token %d is '%.*s', the model's is '%.*s'", i,
                           (int)(y.len < 40 ? y.len : 40), y.data, (int)(x.len < 40 ? x.len : 40), x.data);
    }
    if (!same_ends(model, draft)) return err_set(e, ERR_UNSUPPORTED, "other tokens end its answers");
    return 0;
}

static bool draft_wants(engine_speculate chosen, engine_speculate kind) {
    return chosen == ENGINE_SPECULATE_AUTO || chosen == kind;
}

/* What the named file is: a head has nothing else in it. */
static int open_named(draft_files *d, nn_model *m, const char *path, engine_speculate who, err *e) {
    err why = { 0 };
    int rc = model_file_open(&d->file, path, e), as_head = 0;
    if (rc < 0) return rc;
    if (nn_eagle_is(d->file)) {
        if (draft_wants(who, ENGINE_SPECULATE_EAGLE)) return nn_eagle_open(&d->next, m, d->file, &models_eagle3, e);
        return err_set(e, ERR_ARG, "this is a head of EAGLE-3, which speculate does not ask for");
    }
    if (draft_wants(who, ENGINE_SPECULATE_MTP)) as_head = nn_next_open(&d->next, m, d->file, &why);
    if (d->next && d->next->alone) return 0;
    nn_next_free(d->next);
    d->next = NULL;
    if (draft_wants(who, ENGINE_SPECULATE_DRAFT)) return nn_model_open(&d->model, d->file, models_list, NULL, e);
    if (as_head < 0) *e = why;
    return as_head < 0 ? as_head : err_set(e, ERR_UNSUPPORTED, "this is not a file with a head of that kind alone");
}

static const char *basename_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *runtime_find_head(const char *path) {
    char *out = NULL, *copy = view_ends(view_of(path), ".gguf") ? strdup(path) : NULL;
    if (!copy) return NULL;
    str name;
    str_init(&name);
    str_printf(&name, "mtp-%s", basename_of(path));
    if (str_ok(&name)) out = path_join(dirname(copy), str_cstr(&name));
    str_deinit(&name);
    free(copy);
    if (out && file_exists(out)) return out;
    free(out);
    return NULL;
}

/* The head in the model's file, or in the one that lies beside it. */
static int open_own(draft_files *d, nn_model *m, bool beside, err *e) {
    int rc = nn_next_open(&d->next, m, NULL, e);
    if (rc < 0 || d->next || !beside) return rc;
    char *path = runtime_find_head(model_file_path(m->file));
    if (path && (rc = model_file_open(&d->file, path, e)) == 0) rc = nn_next_open(&d->next, m, d->file, e);
    free(path);
    return rc;
}

int draft_files_open(draft_files *d, nn_model *m, const char *path, engine_speculate who, err *e) {
    int rc = 0;
    err why = { 0 };
    *d = (draft_files){ 0 };
    if (who == ENGINE_SPECULATE_OFF || who == ENGINE_SPECULATE_LOOKUP) return 0;
    if (path) rc = open_named(d, m, path, who, e);
    if (rc < 0) return err_wrap(e, rc, "draft model %s", path);
    if (d->next || !draft_wants(who, ENGINE_SPECULATE_MTP)) return 0;
    rc = open_own(d, m, !path, &why);
    if (rc < 0 && who == ENGINE_SPECULATE_MTP) {
        if (e) *e = why;
        return rc;
    }
    /* Nobody asked for one that cannot be used. */
    if (rc < 0) log_warn("runtime", "no head for further tokens: %s", why.msg);
    return 0;
}

void draft_files_close(draft_files *d) {
    nn_next_free(d->next);
    nn_model_free(d->model);
    model_file_free(d->file);
    *d = (draft_files){ 0 };
}

int draft_open(runtime *r, const runtime_settings *s, engine_options *g, err *e) {
    int          rc = 0;
    tok         *t = NULL;
    draft_files *d = &r->drafts;
    if (s->speculate && (rc = runtime_speculate(s->speculate, &g->speculate, e)) < 0) return rc;
    if (s->draft_max > 0) g->draft_max = s->draft_max;
    if (g->speculate == ENGINE_SPECULATE_DRAFT && !s->draft)
        return err_set(e, ERR_ARG, "speculate: draft needs a draft model (--draft)");
    if (g->speculate == ENGINE_SPECULATE_EAGLE && !s->draft)
        return err_set(e, ERR_ARG, "speculate: eagle needs a head (--draft)");
    if ((rc = draft_files_open(d, r->model, s->draft, g->speculate, e)) < 0) return rc;
    if (g->speculate == ENGINE_SPECULATE_MTP && !d->next)
        return err_set(e, ERR_UNSUPPORTED,
                       "speculate: mtp needs a head for further tokens, which this model has not; one in "
                       "a file of its own is named with --draft");
    if (d->model) {
        rc = bundle_tokenizer_open(&t, d->file, &(tok_options){ 0 }, e);
        if (rc == 0) rc = check_vocabulary(chat_tokenizer(r->chat), t, e);
        tok_free(t);
        if (rc < 0) return err_wrap(e, rc, "draft model %s", s->draft);
    }
    g->draft_model = d->model;
    g->next = d->next;
    return 0;
}

int draft_hint(const runtime *r, const runtime_request *q, tok_ids *out, err *e) {
    if (!q->prediction.len || q->no_drafts) return 0;
    return runtime_tokenize(r, q->prediction, false, false, out, e);
}

const char *runtime_drafters(engine_speculate s, bool has_draft, bool has_next) {
    static const char *const autos[] = { "lookup", "lookup, draft", "lookup, mtp", "lookup, draft, mtp" };
    if (s == ENGINE_SPECULATE_AUTO) return autos[(has_draft ? 1 : 0) + (has_next ? 2 : 0)];
    return s == ENGINE_SPECULATE_OFF ? "" : names[s];
}
