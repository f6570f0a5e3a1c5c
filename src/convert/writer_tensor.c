/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/writer_tensor.h"

#include "formats/text.h"

#include <inttypes.h>

static int check(model_tensor *t, const writer_tensor *w, const writer_limits *l, err *e) {
    size_t need;
    if (w->n_dims < 0 || w->n_dims > l->max_dims) return err_set(e, ERR_ARG, "%d dimensions", w->n_dims);
    if (!l->has_type(w->type))
        return err_set(e, ERR_ARG, "type %s does not exist in %s", tensor_type_name((int)w->type), l->format);
    for (int d = 0; d < MODEL_MAX_DIMS; d++) {
        t->dims[d] = d < w->n_dims ? w->dims[d] : 1;
        if (t->dims[d] < l->least) return err_set(e, ERR_ARG, "dimension %d is %" PRId64, d, t->dims[d]);
    }
    int rc = tensor_table_bytes(t, &need, e);
    if (rc == 0 && need != w->bytes)
        rc = err_set(e, ERR_ARG, "%zu bytes given; type and shape need %zu", w->bytes, need);
    return rc;
}

int writer_tensor_add(tensor_table *t, const writer_tensor *w, const writer_limits *l, err *e) {
    model_tensor m = { .type = w->type, .n_dims = w->n_dims, .data = w->data, .bytes = w->bytes };
    char         text[120];
    int          rc = check(&m, w, l, e);
    if (rc == 0) rc = tensor_table_add(t, &m, view_of(w->name), e);
    return rc < 0 ? err_wrap(e, rc, "tensor %s", text_safe(text, sizeof text, view_of(w->name))) : 0;
}
