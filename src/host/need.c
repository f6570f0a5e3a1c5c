/* SPDX-License-Identifier: Apache-2.0 */
#include "host/need.h"

#include "base/num.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tensor/mat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An opened tokenizer was measured to take 110 to 130 bytes per entry of vocabularies of 50,000 to 100,000, the process
 * without a model 10 MB; these are with some headroom. */
enum { VOCAB_ENTRY_BYTES = 220 };
#define FIXED_BYTES ((uint64_t)16 << 20)

static void fill(need *out, const engine_memory *m, const nn_model *model, const model_file *f,
                 const engine_options *o) {
    out->n_ctx = m->n_ctx;
    out->n_ctx_train = model->dims->context;
    out->weights_bytes = model_file_bytes(f);
    out->cache_bytes_per_1k = (uint64_t)m->page_bytes * 1000 / (uint64_t)m->page_tokens;
    out->sequence_bytes = (uint64_t)m->window_bytes + m->slot_bytes;
    out->cache_bytes = (uint64_t)m->pages_bytes + m->states_bytes + o->host_cache_bytes;
    out->scratch_bytes = (uint64_t)m->heap_bytes + model->mem.used_bytes;
    out->other_bytes = FIXED_BYTES + (uint64_t)num_max(model->dims->n_vocab, 0) * VOCAB_ENTRY_BYTES;
    out->total_bytes = out->weights_bytes + out->cache_bytes + out->scratch_bytes + out->other_bytes;
}

/* Every matrix that the tape reads for one token; of a mixture the experts that are used. */
static void count_token(need *out, const nn_model *m) {
    const nn_tape *t = m->tape;
    for (int i = 0; i < t->n_ops; i++) {
        const nn_op *op = &t->ops[i];
        if (op->kind != NN_OP_LINEAR && op->kind != NN_OP_HEAD_LINEAR && op->kind != NN_OP_EXPERTS) continue;
        const nn_mat *w = op->u.linear.w;
        if (!w) continue;
        int64_t times = op->kind == NN_OP_HEAD_LINEAR ? num_max(w->n_stack, 1) : 1;
        if (op->kind == NN_OP_EXPERTS) times = num_min(t->bufs[op->out].mult, num_max(w->n_stack, 1));
        uint64_t rows = (uint64_t)(w->rows * times);
        out->token_bytes += rows * ((uint64_t)w->at[0].row_bytes + w->at[0].scale_row_bytes);
        out->token_products += rows * (uint64_t)w->cols;
    }
}

int need_of_model(need *out, const model_file *f, const engine_options *options, int n_sequences, err *e) {
    engine_options   o = *options;
    nn_model_options mo = { .rope_context = o.n_ctx };
    nn_model        *model;
    engine_memory    m;
    *out = (need){ 0 };
    if (o.cpu == 0) o.cpu = cpu_detect();
    if (o.max_seqs < n_sequences) o.max_seqs = n_sequences;
    int rc = nn_model_open(&model, f, models_list, &mo, e);
    if (rc < 0) return rc;
    rc = engine_measure(&m, model, &o, e);
    if (rc == 0 && n_sequences > 0) {
        /* One page of every group per page_tokens positions; pages_bytes has the engine's own number of them. */
        size_t pages = ((size_t)m.n_ctx + (size_t)m.page_tokens - 1) / (size_t)m.page_tokens, bytes = 0;
        if (!num_mul_size(pages * (size_t)n_sequences, m.all_page_bytes, &bytes))
            rc = err_set(e, ERR_LIMIT, "%d sequences of %d tokens are too many", n_sequences, m.n_ctx);
        if (rc == 0 && bytes > 0) {
            o.cache_bytes = bytes;
            rc = engine_measure(&m, model, &o, e);
        }
    }
    if (rc == 0) {
        fill(out, &m, model, f, &o);
        count_token(out, model);
        out->n_sequences = n_sequences > 0 ? n_sequences : m.full_sequences;
    }
    nn_model_free(model);
    return rc;
}

int need_of_path(need *out, const char *path, const engine_options *o, int n_sequences, err *e) {
    model_file *f;
    int         rc = model_file_open(&f, path, e);
    *out = (need){ 0 };
    if (rc < 0) return rc;
    rc = need_of_model(out, f, o, n_sequences, e);
    model_file_free(f);
    return rc;
}

/* --- memory of the machine --- */

static uint64_t meminfo(const char *key) {
    char     line[256];
    uint64_t kib = 0;
    size_t   n = strlen(key);
    FILE    *f = fopen("/proc/meminfo", "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            kib = strtoull(line + n + 1, NULL, 10);
            break;
        }
    }
    fclose(f);
    return kib * 1024;
}

/* A file with one number; false: there is none, or it says "max". */
static bool number_in(const char *dir, const char *name, uint64_t *out) {
    char  path[1024], text[64] = "", *end;
    FILE *f;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path || !(f = fopen(path, "re"))) return false;
    bool got = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    *out = strtoull(text, &end, 10);
    return got && end != text;
}

/* The bytes of a statistic such as inactive_file: cache that goes when somebody needs the room. */
static uint64_t stat_in(const char *dir, const char *key) {
    char     path[1024], line[256];
    size_t   n = strlen(key);
    uint64_t value = 0;
    FILE    *f;
    if (snprintf(path, sizeof path, "%s/memory.stat", dir) >= (int)sizeof path || !(f = fopen(path, "re"))) return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) == 0 && line[n] == ' ') value = strtoull(line + n + 1, NULL, 10);
    }
    fclose(f);
    return value;
}

/* The lowest room of a group and of those above it, which limit it too. */
static uint64_t group_room(char *dir, size_t root, const char *limit, const char *usage) {
    uint64_t room = UINT64_MAX;
    for (;;) {
        uint64_t max, used = 0;
        if (number_in(dir, limit, &max) && number_in(dir, usage, &used)) {
            uint64_t cache = stat_in(dir, "inactive_file") + stat_in(dir, "active_file");
            used -= cache < used ? cache : used;
            uint64_t left = max > used ? max - used : 0;
            if (left < room) room = left;
        }
        char *slash = strrchr(dir + root, '/');
        if (!slash) return room;
        *slash = '\0';
    }
}

static uint64_t cgroup_room(void) {
    char     line[1024], dir[2048];
    uint64_t room = UINT64_MAX;
    FILE    *f = fopen("/proc/self/cgroup", "re");
    if (!f) return room;
    while (fgets(line, sizeof line, f)) { /* "0::/path", "5:memory:/path" */
        char *first = strchr(line, ':'), *path = first ? strchr(first + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        bool        v2 = first[1] == '\0', v1 = strstr(first + 1, "memory") != NULL;
        const char *root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        if ((!v2 && !v1) || snprintf(dir, sizeof dir, "%s%s", root, path) >= (int)sizeof dir) continue;
        uint64_t left = group_room(dir, strlen(root), v2 ? "memory.max" : "memory.limit_in_bytes",
                                   v2 ? "memory.current" : "memory.usage_in_bytes");
        if (left < room) room = left;
    }
    fclose(f);
    return room;
}

uint64_t need_available_bytes(const char **limit_from) {
    uint64_t machine = meminfo("MemAvailable"), group = cgroup_room();
    bool     by_group = group < machine || (machine == 0 && group != UINT64_MAX);
    if (limit_from) *limit_from = by_group ? "cgroup" : "memory";
    return by_group ? group : machine;
}
