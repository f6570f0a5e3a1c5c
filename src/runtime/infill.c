/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fill in the middle: prefix and suffix between the marker tokens that code models were trained with.
 *
 * The markers differ by family, and so does the order; the vocabulary tells which ones a model has.
 */
#include "runtime/internal.h"

#include <string.h>

typedef struct markers {
    const char *prefix, *suffix, *middle; /* middle NULL: none is written */
    bool        suffix_first;
} markers;

static const markers known[] = {
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false },    /* Qwen, CodeGemma */
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", false },          /* StarCoder, Granite */
    { "<fim-prefix>", "<fim-suffix>", "<fim-middle>", false },          /* SantaCoder */
    { "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", false }, /* GLM */
    { "<\xEF\xBD\x9C"
      "fim\xE2\x96\x81"
      "begin\xEF\xBD\x9C>",
      "<\xEF\xBD\x9C"
      "fim\xE2\x96\x81"
      "hole\xEF\xBD\x9C>",
      "<\xEF\xBD\x9C"
      "fim\xE2\x96\x81"
      "end\xEF\xBD\x9C>",
      false },                                                                /* DeepSeek */
    { "\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>", false }, /* Code Llama */
    { "[PREFIX]", "[SUFFIX]", NULL, true },                                   /* Codestral */
};

static int32_t find(const tok *t, const char *text) { return text ? tok_find(t, text, strlen(text)) : -1; }

static const markers *find_markers(const tok *t) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const markers *m = &known[i];
        if (find(t, m->prefix) >= 0 && find(t, m->suffix) >= 0 && (!m->middle || find(t, m->middle) >= 0)) return m;
    }
    return NULL;
}

bool infill_known(const tok *t) { return find_markers(t) != NULL; }

static int marked(const tok *t, const char *marker, view text, tok_ids *out, err *e) {
    if (!tok_ids_push(out, find(t, marker))) return err_set_nomem(e);
    return tok_encode(t, text.data, text.len, 0, out, e);
}

int infill_encode(const tok *t, view prefix, view suffix, tok_ids *out, err *e) {
    const markers *m = find_markers(t);
    int            rc;
    if (!m) return err_set(e, ERR_UNSUPPORTED, "infill: this model's vocabulary has no tokens for a gap in a text");
    if (tok_adds_bos(t) && tok_bos(t) >= 0 && !tok_ids_push(out, tok_bos(t))) return err_set_nomem(e);
    if (m->suffix_first) {
        if ((rc = marked(t, m->suffix, suffix, out, e)) < 0 || (rc = marked(t, m->prefix, prefix, out, e)) < 0)
            return rc;
    } else {
        if ((rc = marked(t, m->prefix, prefix, out, e)) < 0 || (rc = marked(t, m->suffix, suffix, out, e)) < 0)
            return rc;
    }
    return !m->middle || tok_ids_push(out, find(t, m->middle)) ? 0 : err_set_nomem(e);
}
