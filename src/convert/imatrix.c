/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/imatrix.h"

#include "base/file.h"
#include "base/num.h"
#include "base/xxh64.h"
#include "formats/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1 << 20, MAX_VALUES = 1 << 28, MAX_TEXTS = 1000, MAX_FILE = 1 << 30 };

struct imatrix {
    imatrix_entry *items;
    size_t         count, cap;
    map            index;
    arena          mem; /* names and sums */
    char         **texts;
    size_t         n_texts;
    int64_t        chunks, chunk_size;
};

int imatrix_open(imatrix **out, err *e) {
    imatrix *m = *out = calloc(1, sizeof *m);
    if (!m) return err_set_nomem(e);
    map_init(&m->index);
    arena_init(&m->mem, 0);
    return 0;
}

void imatrix_free(imatrix *m) {
    if (!m) return;
    map_deinit(&m->index);
    arena_deinit(&m->mem);
    free(m->items);
    free(m->texts);
    free(m);
}

size_t               imatrix_count(const imatrix *m) { return m->count; }
const imatrix_entry *imatrix_at(const imatrix *m, size_t index) { return &m->items[index]; }
int64_t              imatrix_chunks(const imatrix *m) { return m->chunks; }

static int grow(imatrix *m, err *e) {
    if (m->count < m->cap) return 0;
    size_t         cap = m->cap ? m->cap * 2 : 64;
    imatrix_entry *items = realloc(m->items, cap * sizeof *items);
    if (!items) return err_set_nomem(e);
    m->items = items;
    m->cap = cap;
    return 0;
}

int imatrix_entry_for(imatrix *m, const char *name, int64_t cols, int64_t experts, imatrix_entry **out, err *e) {
    uint64_t at;
    char     safe[120];
    int      rc;
    if (map_get_c(&m->index, name, &at)) {
        *out = &m->items[at];
        if ((*out)->cols == cols && (*out)->experts == experts) return 0;
        return err_set(e, ERR_FORMAT,
                       "%s has %" PRId64 " times %" PRId64 " columns here and %" PRId64 " times %" PRId64 " there",
                       text_safe(safe, sizeof safe, view_of(name)), (*out)->experts, (*out)->cols, experts, cols);
    }
    if (cols < 1 || experts < 1 || cols > MAX_VALUES || experts > MAX_VALUES / cols || m->count == MAX_ENTRIES)
        return err_set(e, ERR_FORMAT, "%s: %" PRId64 " times %" PRId64 " columns",
                       text_safe(safe, sizeof safe, view_of(name)), experts, cols);
    if ((rc = text_name_check(view_of(name), TABLE_MAX_NAME, e)) < 0 || (rc = grow(m, e)) < 0) return rc;
    imatrix_entry x = { .cols = cols, .experts = experts };
    x.name = arena_strdup(&m->mem, name);
    x.sums = arena_calloc(&m->mem, (size_t)(cols * experts), sizeof *x.sums);
    x.counts = arena_calloc(&m->mem, (size_t)experts, sizeof *x.counts);
    if (!x.name || !x.sums || !x.counts || !map_put(&m->index, x.name, strlen(x.name), m->count))
        return err_set_nomem(e);
    m->items[m->count] = x;
    *out = &m->items[m->count++];
    return 0;
}

int imatrix_add(imatrix *to, const imatrix *from, err *e) {
    for (size_t i = 0; i < from->count; i++) {
        const imatrix_entry *x = &from->items[i];
        imatrix_entry       *t;
        int                  rc = imatrix_entry_for(to, x->name, x->cols, x->experts, &t, e);
        if (rc < 0) return rc;
        for (int64_t k = 0; k < x->cols * x->experts; k++) t->sums[k] += x->sums[k];
        for (int64_t k = 0; k < x->experts; k++) t->counts[k] += x->counts[k];
        t->mean = NULL;
    }
    int rc = 0;
    for (size_t i = 0; i < from->n_texts && rc == 0; i++) rc = imatrix_add_text(to, from->texts[i], 0, 0, e);
    to->chunks += from->chunks;
    if (!to->chunk_size) to->chunk_size = from->chunk_size;
    return rc;
}

int imatrix_add_text(imatrix *m, const char *name, int64_t chunks, int64_t chunk_size, err *e) {
    m->chunks += chunks;
    if (chunk_size) m->chunk_size = chunk_size;
    for (size_t i = 0; i < m->n_texts; i++)
        if (strcmp(m->texts[i], name) == 0) return 0;
    if (m->n_texts >= MAX_TEXTS) return 0; /* the sums matter, not the names */
    char **texts = realloc(m->texts, (m->n_texts + 1) * sizeof *texts);
    if (!texts) return err_set_nomem(e);
    m->texts = texts;
    if (!(texts[m->n_texts] = arena_strdup(&m->mem, name))) return err_set_nomem(e);
    m->n_texts++;
    return 0;
}

/* --- importance -------------------------------------------------------------------------------------------------- */

static bool make_mean(imatrix *m, imatrix_entry *x) {
    float *mean = arena_alloc(&m->mem, (size_t)(x->cols * x->experts) * sizeof *mean);
    if (!mean) return false;
    for (int64_t g = 0; g < x->experts; g++) {
        for (int64_t c = 0; c < x->cols; c++) {
            double v = x->counts[g] > 0 ? x->sums[g * x->cols + c] / x->counts[g] : 1;
            mean[g * x->cols + c] = isfinite(v) && v > 0 ? (float)v : 0;
        }
    }
    x->mean = mean;
    return true;
}

const float *imatrix_find(const imatrix *m, const char *name, int64_t cols, int64_t experts) {
    uint64_t at;
    if (!map_get_c(&m->index, name, &at)) return NULL;
    imatrix_entry *x = &m->items[at];
    /* The older format does not say how many experts its values are of. */
    bool flat = x->experts == 1 && experts > 0 && x->cols % experts == 0 && x->cols / experts == cols;
    if (!flat && (x->cols != cols || x->experts != experts)) return NULL;
    /* The means are a cache of what is there already. */
    return x->mean || make_mean((imatrix *)(uintptr_t)m, x) ? x->mean : NULL;
}

uint64_t imatrix_identity(const imatrix *m) {
    uint64_t sum = m->count;
    for (size_t i = 0; i < m->count; i++) {
        const imatrix_entry *x = &m->items[i];
        uint64_t             pair[3] = { sum, xxh64(x->sums, (size_t)(x->cols * x->experts) * sizeof *x->sums),
                                         xxh64(x->counts, (size_t)x->experts * sizeof *x->counts) };
        sum = xxh64(pair, sizeof pair);
    }
    return sum;
}

int imatrix_note(const imatrix *m, gguf_writer *w, err *e) {
    int rc = gguf_writer_set_int(w, "quantize.imatrix.entries_count", META_U32, (int64_t)m->count, e);
    if (rc == 0 && m->n_texts) rc = gguf_writer_set_string(w, "quantize.imatrix.dataset", m->texts[0], e);
    if (rc == 0 && m->chunks > 0 && m->chunks <= UINT32_MAX)
        rc = gguf_writer_set_int(w, "quantize.imatrix.chunks_count", META_U32, m->chunks, e);
    return rc;
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

static bool good(float v) { return isfinite(v) && v >= 0; }

static int read_sums(imatrix *m, const tensor_table *t, const model_tensor *sums, err *e) {
    static const char   tail[] = ".in_sum2";
    char                name[TABLE_MAX_NAME + 16];
    size_t              len = strlen(sums->name) - (sizeof tail - 1);
    const model_tensor *counts;
    imatrix_entry      *x;
    int                 rc;
    memcpy(name, sums->name, len);
    memcpy(name + len, ".counts", 8);
    counts = tensor_table_find(t, name, strlen(name));
    name[len] = '\0';
    if (!counts || counts->type != TENSOR_F32 || sums->type != TENSOR_F32)
        return err_set(e, ERR_FORMAT, "%s: its counts are missing, or the numbers are not F32", name);
    int64_t experts = (int64_t)(counts->bytes / 4), cols = sums->dims[0];
    if (cols < 1 || (int64_t)(sums->bytes / 4) != cols * experts)
        return err_set(e, ERR_FORMAT, "%s: %" PRId64 " columns and %" PRId64 " counts do not fit together", name, cols,
                       experts);
    if ((rc = imatrix_entry_for(m, name, cols, experts, &x, e)) < 0) return rc;
    for (int64_t i = 0; i < cols * experts; i++) {
        float v;
        memcpy(&v, sums->data + 4 * i, 4);
        if (!good(v)) return err_set(e, ERR_FORMAT, "%s: a sum of squares is negative or not finite", name);
        x->sums[i] = (double)v;
    }
    for (int64_t i = 0; i < experts; i++) {
        float v;
        memcpy(&v, counts->data + 4 * i, 4);
        if (!good(v)) return err_set(e, ERR_FORMAT, "%s: a count is negative or not finite", name);
        x->counts[i] = (double)v;
    }
    return 0;
}

static int read_texts(imatrix *m, const gguf *g, err *e) {
    const meta_value *texts = gguf_find(g, "imatrix.datasets");
    int64_t           v;
    int               rc = 0;
    view              s;
    if (meta_int(gguf_find(g, "imatrix.chunk_count"), &v) && v > 0) m->chunks = v;
    if (meta_int(gguf_find(g, "imatrix.chunk_size"), &v) && v > 0) m->chunk_size = v;
    for (size_t i = 0; rc == 0 && i < MAX_TEXTS && meta_at_string(texts, i, &s); i++) {
        char *name = strndup(s.data, s.len);
        rc = name ? imatrix_add_text(m, name, 0, 0, e) : err_set_nomem(e);
        free(name);
    }
    return rc;
}

static int read_gguf(imatrix *m, const void *data, size_t bytes, err *e) {
    gguf         g;
    tensor_table t;
    view         type;
    tensor_table_init(&t);
    int rc = gguf_read_memory(&g, data, bytes, &t, e);
    if (rc == 0) {
        if (!meta_string(gguf_find(&g, "general.type"), &type) || !view_eq_c(type, "imatrix"))
            rc = err_set(e, ERR_FORMAT, "general.type is not imatrix");
        for (size_t i = 0; i < t.count && rc == 0; i++)
            if (view_ends(view_of(t.items[i].name), ".in_sum2")) rc = read_sums(m, &t, &t.items[i], e);
        if (rc == 0) rc = read_texts(m, &g, e);
        gguf_deinit(&g);
    }
    tensor_table_deinit(&t);
    return rc;
}

/* The older format: a cursor over the bytes. */
typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

static bool take_i32(cursor *c, int32_t *out) {
    if (c->end - c->at < 4) return false;
    memcpy(out, c->at, 4);
    c->at += 4;
    return true;
}

static bool take_text(cursor *c, char *out, size_t cap) {
    int32_t len;
    if (!take_i32(c, &len) || len < 1 || (size_t)len >= cap || c->end - c->at < len) return false;
    memcpy(out, c->at, (size_t)len);
    out[len] = '\0';
    c->at += len;
    return strlen(out) == (size_t)len;
}

static int read_legacy_entry(imatrix *m, cursor *c, err *e) {
    char           name[TABLE_MAX_NAME + 1];
    int32_t        calls, values;
    imatrix_entry *x;
    int            rc;
    if (!take_text(c, name, sizeof name) || !take_i32(c, &calls) || !take_i32(c, &values) || calls < 0 || values < 1 ||
        (c->end - c->at) / 4 < values)
        return err_set(e, ERR_FORMAT, "entry %zu is cut off or has a wrong length", m->count);
    if ((rc = imatrix_entry_for(m, name, values, 1, &x, e)) < 0) return rc;
    x->counts[0] = calls;
    for (int32_t i = 0; i < values; i++) {
        float v;
        memcpy(&v, c->at + 4 * i, 4);
        if (!good(v)) return err_set(e, ERR_FORMAT, "%s: a value is negative or not finite", name);
        x->sums[i] = (double)v;
    }
    c->at += 4 * (size_t)values;
    return 0;
}

static int read_legacy(imatrix *m, const void *data, size_t bytes, err *e) {
    cursor  c = { data, (const uint8_t *)data + bytes };
    int32_t entries, chunks;
    char    text[1024];
    int     rc = 0;
    if (!take_i32(&c, &entries) || entries < 1 || entries > MAX_ENTRIES)
        return err_set(e, ERR_FORMAT, "neither a GGUF file nor one of the older format");
    for (int32_t i = 0; i < entries && rc == 0; i++) rc = read_legacy_entry(m, &c, e);
    if (rc == 0 && take_i32(&c, &chunks) && chunks > 0) {
        m->chunks = chunks;
        if (take_text(&c, text, sizeof text)) rc = imatrix_add_text(m, text, 0, 0, e);
    }
    return rc;
}

int imatrix_read_memory(imatrix **out, const void *data, size_t bytes, err *e) {
    int rc = imatrix_open(out, e);
    if (rc < 0) return rc;
    rc = gguf_is(data, bytes) ? read_gguf(*out, data, bytes, e) : read_legacy(*out, data, bytes, e);
    if (rc == 0 && (*out)->count == 0) rc = err_set(e, ERR_FORMAT, "it holds no sums");
    if (rc == 0) return 0;
    imatrix_free(*out);
    *out = NULL;
    return rc;
}

int imatrix_read(imatrix **out, const char *path, err *e) {
    file_map file;
    int      rc = file_map_open(&file, path, e);
    *out = NULL;
    if (rc < 0) return rc;
    rc = file.bytes > MAX_FILE ? err_set(e, ERR_LIMIT, "more than %d bytes", MAX_FILE)
                               : imatrix_read_memory(out, file.data, file.bytes, e);
    file_map_close(&file);
    return rc < 0 ? err_wrap(e, rc, "%s", path) : 0;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static int add_floats(gguf_writer *w, arena *mem, const char *name, const char *tail, const double *v, int64_t cols,
                      int64_t experts, err *e) {
    str     full;
    int64_t dims[2] = { cols, experts };
    float  *copy = arena_alloc(mem, (size_t)(cols * experts) * sizeof *copy);
    if (!copy) return err_set_nomem(e);
    for (int64_t i = 0; i < cols * experts; i++) copy[i] = (float)v[i];
    str_init(&full);
    str_printf(&full, "%s%s", name, tail);
    int rc = str_ok(&full) ? gguf_writer_add(w, str_cstr(&full), TENSOR_F32, 2, dims, copy,
                                             (size_t)(cols * experts) * sizeof *copy, e)
                           : err_set_nomem(e);
    str_deinit(&full);
    return rc;
}

int imatrix_write(const imatrix *m, const char *path, err *e) {
    gguf_writer *w = NULL;
    arena        mem;
    view        *texts;
    arena_init(&mem, 0);
    int rc = gguf_writer_open(&w, 0, e);
    if (rc == 0) rc = gguf_writer_set_string(w, "general.type", "imatrix", e);
    if (rc == 0 && !(texts = arena_calloc(&mem, m->n_texts + 1, sizeof *texts))) rc = err_set_nomem(e);
    for (size_t i = 0; rc == 0 && i < m->n_texts; i++) texts[i] = view_of(m->texts[i]);
    if (rc == 0) rc = gguf_writer_set_strings(w, "imatrix.datasets", texts, m->n_texts, e);
    if (rc == 0) rc = gguf_writer_set_int(w, "imatrix.chunk_count", META_U32, num_min(m->chunks, UINT32_MAX), e);
    if (rc == 0) rc = gguf_writer_set_int(w, "imatrix.chunk_size", META_U32, num_min(m->chunk_size, UINT32_MAX), e);
    for (size_t i = 0; rc == 0 && i < m->count; i++) {
        const imatrix_entry *x = &m->items[i];
        rc = add_floats(w, &mem, x->name, ".in_sum2", x->sums, x->cols, x->experts, e);
        if (rc == 0) rc = add_floats(w, &mem, x->name, ".counts", x->counts, 1, x->experts, e);
    }
    if (rc == 0) rc = gguf_writer_write(w, path, e);
    gguf_writer_free(w);
    arena_deinit(&mem);
    return rc;
}
