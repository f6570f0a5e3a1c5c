/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/describe.h"

#include "base/str.h"
#include "formats/summary.h"

#include <string.h>

static int copy(char **out, view text, err *e) {
    *out = text.len ? strndup(text.data, text.len) : NULL;
    return text.len && !*out ? err_set_nomem(e) : 0;
}

int registry_describe(registry_model *m, const char *path, err *e) {
    model_file   *file = NULL;
    model_summary s;
    int           rc;
    if (!(m->path = strdup(path))) return err_set_nomem(e);
    if ((rc = model_file_open(&file, path, e)) < 0) return rc;
    model_summary_read(&s, file);
    if ((rc = copy(&m->family, s.arch, e)) == 0 && (rc = copy(&m->format, view_of(s.format), e)) == 0)
        rc = copy(&m->quant, view_of(s.level), e);
    m->params = (int64_t)s.parameters;
    m->n_ctx = s.context;
    m->n_layer = s.layers;
    m->vocab_size = s.vocabulary ? s.vocabulary : s.tokens;
    m->size = (int64_t)s.file_bytes;
    model_summary_deinit(&s);
    model_file_free(file);
    return rc;
}
