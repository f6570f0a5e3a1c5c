/* SPDX-License-Identifier: Apache-2.0 */
/* From an adapter's names to the model's matrices and their rows. */
#include "nn/adapter_impl.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    adapter_match match;
    uint64_t      next; /* position + 1 of another matrix of this name; 0: none */
};

static int add(adapter_names *n, const nn_bound *b, const bind_name *name, err *e) {
    const char *key = name->name;
    uint64_t    first = 0;
    if (!n->gguf && strncmp(key, "model.", 6) == 0) key += 6;
    if (n->n == n->cap) {
        size_t        cap = n->cap ? n->cap * 2 : 512;
        struct entry *more = realloc(n->entries, cap * sizeof *more);
        if (!more) return err_set_nomem(e);
        n->entries = more;
        n->cap = cap;
    }
    size_t len = strlen(key);
    char  *copy = arena_strndup(&n->mem, key, len);
    map_get(&n->index, key, len, &first);
    for (uint64_t at = first; at; at = n->entries[at - 1].next) { /* spellings that differ by the root alone */
        if (n->entries[at - 1].match.bound == b) return copy ? 0 : err_set_nomem(e);
    }
    n->entries[n->n] = (struct entry){ { .bound = b,
                                         .part = name->part,
                                         .parts = name->parts ? name->parts : 1,
                                         .interleaved = name->interleaved,
                                         .expert = -1 },
                                       first };
    n->n++;
    return copy && map_put(&n->index, copy, len, n->n) ? 0 : err_set_nomem(e);
}

int adapter_names_init(adapter_names *n, const nn_model *m, bool as_gguf, err *e) {
    int rc = 0;
    *n = (adapter_names){ .gguf = as_gguf };
    map_init(&n->index);
    arena_init(&n->mem, 0);
    for (const nn_bound *b = m->bound; b && rc == 0; b = b->next) {
        const char *list = as_gguf ? b->gguf : b->hf;
        bind_name   name;
        while (rc == 0 && bind_next_name(&list, as_gguf ? b->gguf_prefix : b->hf_prefix, &name))
            rc = add(n, b, &name, e);
    }
    return rc;
}

void adapter_names_deinit(adapter_names *n) {
    map_deinit(&n->index);
    free(n->entries);
    arena_deinit(&n->mem);
}

/* The entries of one spelling, as matches of this expert. */
static int take(const adapter_names *n, const char *key, int expert, adapter_match *out) {
    uint64_t at = 0;
    int      count = 0;
    map_get(&n->index, key, strlen(key), &at);
    for (; at && count < ADAPTER_MAX_MATCHES; at = n->entries[at - 1].next) {
        out[count] = n->entries[at - 1].match;
        out[count++].expert = expert;
    }
    return count;
}

/* The name with one of its numbers replaced by '*', each in turn: "experts.3.up_proj" is expert 3 of "experts.*.up_proj". */
static int take_expert(const adapter_names *n, const char *name, adapter_match *out) {
    for (const char *p = name; *p; p++) {
        size_t digits = strspn(p, "0123456789");
        char   key[TABLE_MAX_NAME + 2];
        if (digits == 0 || digits > 6 || (p > name && p[-1] != '.') || (p[digits] && p[digits] != '.')) continue;
        int expert = atoi(p), count;
        if (strlen(name) >= sizeof key) return 0;
        memcpy(key, name, (size_t)(p - name));
        key[p - name] = '*';
        memcpy(key + (p - name) + 1, p + digits, strlen(p + digits) + 1);
        if ((count = take(n, key, expert, out)) > 0) return count;
        p += digits - 1;
    }
    return 0;
}

int adapter_names_find(const adapter_names *n, const char *module, adapter_match out[ADAPTER_MAX_MATCHES]) {
    int count = 0;
    if (n->gguf) return take(n, module, -1, out);
    for (int i = 0; bind_roots[i] && count == 0; i++) {
        size_t len = strlen(bind_roots[i]);
        if (strncmp(module, bind_roots[i], len) != 0) continue;
        if ((count = take(n, module + len, -1, out)) == 0) count = take_expert(n, module + len, out);
    }
    return count;
}

int64_t adapter_match_total(const nn_model *m, const adapter_match *a, bool as_gguf) {
    (void)m;
    if (!as_gguf && a->bound->hf_rows) return a->bound->hf_total;
    return a->bound->total * a->parts;
}

/* GGUF has (j, i) of a rotated head at 2i + j where the family says so; Hugging Face at j * half + i. */
static int64_t permuted(const nn_model *m, const nn_bound *b, bool as_gguf, int64_t r) {
    int64_t dim = m->dims->head_dim, half = dim / 2;
    if (!b->rotary || !m->arch->permuted_qk || nn_config_gguf(&m->config) == as_gguf || half < 1 || dim % 2) return r;
    int64_t h = r / dim, k = r % dim;
    return h * dim + (as_gguf ? 2 * (k % half) + k / half : k % 2 * half + k / 2);
}

int64_t adapter_match_row(const nn_model *m, const adapter_match *a, bool as_gguf, int64_t r) {
    const nn_bound *b = a->bound;
    if (!as_gguf && b->hf_rows) return b->hf_rows[r];
    r = permuted(m, b, as_gguf, r) + b->first;
    return a->interleaved ? r * a->parts + a->part : a->part * b->total + r;
}
