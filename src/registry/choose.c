/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/choose.h"

#include "base/json.h"
#include "base/map.h"
#include "registry/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_PARTS = 9999 };

/* The first of these that a repository has, if no label was asked for: four bits with the least loss, then better, then
 * smaller ones, then what is not quantized at all. */
static const char *const preferred[] = {
    "Q4_K_M", "UD-Q4_K_XL", "Q4_K_L", "Q4_K_S", "MXFP4", "MXFP4_MOE", "IQ4_XS", "IQ4_NL",
    "Q4_0",   "Q4_1",       "Q5_K_M", "Q5_K_S", "Q5_0",  "Q5_1",      "Q6_K",   "Q8_0",
    "Q3_K_M", "Q3_K_L",     "Q3_K_S", "Q2_K",   "BF16",  "F16",       "FP16",   "F32",
};

/* What a folder of safetensors needs beside the weights. */
static const char *const sidecars[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "chat_template.json",
    "quantize_config.json",
    "quant_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
};

void choice_deinit(choice *c) {
    free(c->take);
    memset(c, 0, sizeof *c);
}

static bool ends_fold(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcasecmp(text + n - k, end) == 0;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "x-00002-of-00005.gguf": the length of "x", 2 and 5; false for a file that is not a part. */
static bool part_of(const char *path, const char *suffix, size_t *stem, int *no, int *of) {
    enum { TAIL = 15 }; /* -00001-of-00005 */
    size_t n = strlen(path), k = strlen(suffix);
    if (n < k + TAIL || strcasecmp(path + n - k, suffix) != 0) return false;
    const char *tail = path + n - k - TAIL;
    if (tail[0] != '-' || memcmp(tail + 6, "-of-", 4) != 0) return false;
    for (int i = 1; i < TAIL; i++) {
        if ((i < 6 || i > 9) && (tail[i] < '0' || tail[i] > '9')) return false;
    }
    *no = atoi(tail + 1);
    *of = atoi(tail + 10);
    *stem = (size_t)(tail - path);
    return *no >= 1 && *of >= *no && *of <= MAX_PARTS;
}

view choose_label(const char *path) {
    const char *name = base_name(path);
    size_t      len = strlen(name), stem;
    int         no, of;
    if (part_of(name, ".gguf", &stem, &no, &of))
        len = stem;
    else if (ends_fold(name, ".gguf"))
        len -= 5;
    for (size_t i = 0; i < len; i++) { /* the longest end that is one: "UD-Q4_K_XL" before "Q4_K_XL" */
        if (i > 0 && !strchr("-._", name[i - 1])) continue;
        view end = { name + i, len - i };
        if (name_is_quant(end)) return end;
    }
    return (view){ name + len, 0 };
}

/* --- GGUF --- */

typedef struct group { /* a file, or all parts of one */
    size_t  first;
    int64_t bytes;
    view    label;
} group;

/* Projectors and importance matrices are GGUF files, but no language models. */
static bool is_mmproj(const char *path) {
    const char *name = base_name(path);
    return ends_fold(name, ".gguf") && (strncasecmp(name, "mmproj", 6) == 0 || strcasestr(name, "-mmproj"));
}

static bool is_gguf(const char *path) {
    return ends_fold(path, ".gguf") && !is_mmproj(path) && !strcasestr(base_name(path), "imatrix");
}

static bool same_group(const char *a, const char *b) {
    size_t x, y;
    int    no, a_of, b_of;
    return part_of(a, ".gguf", &x, &no, &a_of) && part_of(b, ".gguf", &y, &no, &b_of) && x == y && a_of == b_of &&
           memcmp(a, b, x) == 0;
}

/* Parts belong together by what stands before their numbers. False: out of memory. */
static bool find_groups(const hub_listing *l, group *out, size_t *n_out) {
    size_t n = 0;
    map    stems;
    bool   ok = true;
    map_init(&stems);
    for (size_t i = 0; i < l->n && ok; i++) {
        size_t      stem;
        int         no, of;
        uint64_t    at;
        const char *path = l->files[i].path;
        if (!is_gguf(path)) continue;
        bool part = part_of(path, ".gguf", &stem, &no, &of);
        if (part && map_get(&stems, path, stem, &at)) {
            out[at].bytes += l->files[i].size;
            if (no == 1) out[at].first = i;
            continue;
        }
        if (part) ok = map_put(&stems, path, stem, n);
        out[n++] = (group){ i, l->files[i].size, choose_label(path) };
    }
    map_deinit(&stems);
    *n_out = n;
    return ok;
}

/* Lists what there is, as far as a sentence holds it. */
static int list_choices(const choose_wish *w, const hub_listing *l, const group *g, size_t n, int code,
                        const char *begin, err *e) {
    str s;
    str_init(&s);
    for (size_t i = 0; i < n; i++) {
        char        bytes[16];
        const char *path = l->files[g[i].first].path;
        name_bytes(bytes, (double)g[i].bytes);
        if (s.len > 280) {
            str_printf(&s, " and %zu more", n - i);
            break;
        }
        bool twin = g[i].label.len == 0;
        for (size_t k = 0; k < n && !twin; k++)
            twin = k != i && g[k].label.len == g[i].label.len &&
                   strncasecmp(g[k].label.data, g[i].label.data, g[i].label.len) == 0;
        if (twin)
            str_printf(&s, "%s %.120s (%s)", i ? "," : "", path, bytes);
        else
            str_printf(&s, "%s %.*s (%s)", i ? "," : "", (int)g[i].label.len, g[i].label.data, bytes);
    }
    int rc = err_set(e, code, "%.120s %s:%s. Name one, as in %.100s:%.*s or --gguf-file FILE", w->repo, begin,
                     str_cstr(&s), w->repo, n && g[0].label.len ? (int)g[0].label.len : 6,
                     n && g[0].label.len ? g[0].label.data : "Q4_K_M");
    str_deinit(&s);
    return rc;
}

/* The only group with this label; *n_found says how many there are. */
static size_t with_label(const group *g, size_t n, const char *label, bool loosely, size_t *n_found) {
    size_t found = SIZE_MAX, k = strlen(label);
    *n_found = 0;
    for (size_t i = 0; i < n; i++) {
        view have = g[i].label;
        bool fits = have.len == k && strncasecmp(have.data, label, k) == 0;
        if (loosely && !fits && have.len > k)
            fits = strncasecmp(have.data + have.len - k, label, k) == 0 && have.data[have.len - k - 1] == '-';
        if (!fits) continue;
        if (++*n_found == 1) found = i;
    }
    return found;
}

static int take_group(choice *c, const hub_listing *l, size_t first, err *e) {
    const char *path = l->files[first].path;
    size_t      stem;
    int         no, of, have = 0;
    c->main = first;
    c->take[first] = true;
    if (!part_of(path, ".gguf", &stem, &no, &of)) return 0;
    for (size_t i = 0; i < l->n; i++) {
        if (!same_group(path, l->files[i].path)) continue;
        c->take[i] = true;
        have++;
    }
    if (have == of && no == 1) return 0;
    return err_set(e, ERR_NOTFOUND, "%s: the repository has %d of its %d parts", path, have, of);
}

static int named_file(const hub_listing *l, const choose_wish *w, size_t *out, err *e) {
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->files[i].path, w->file) == 0) {
            *out = i;
            return 0;
        }
        if (strcmp(base_name(l->files[i].path), w->file) == 0 && ++n == 1) *out = i;
    }
    if (n == 1) return 0;
    if (n > 1) return err_set(e, ERR_ARG, "%s has %zu files %s; give its folder, too", w->repo, n, w->file);
    return err_set(e, ERR_NOTFOUND, "%s has no file %s", w->repo, w->file);
}

/* Smaller is better: how many folders apart, then how its weights are stored. -1: it lies in a folder of its own. */
static int tower_rank(const char *model, const char *tower) {
    static const char *const bits[] = { "F16", "BF16", "F32", "Q8_0" };
    size_t                   folder = (size_t)(base_name(tower) - tower);
    view                     label = choose_label(tower);
    int                      apart = 0, rank = 0;
    if (strncmp(model, tower, folder) != 0) return -1;
    for (const char *c = model + folder; (c = strchr(c, '/')); c++) apart++;
    while (rank < 4 && !(label.len == strlen(bits[rank]) && strncasecmp(label.data, bits[rank], label.len) == 0))
        rank++;
    return apart * 8 + rank;
}

static void take_tower(choice *c, const hub_listing *l) {
    int best = -1;
    for (size_t i = 0; i < l->n; i++) {
        int rank = is_mmproj(l->files[i].path) ? tower_rank(l->files[c->main].path, l->files[i].path) : -1;
        if (rank < 0 || (best >= 0 && rank >= best)) continue;
        best = rank;
        c->mmproj = i;
    }
    if (c->mmproj != SIZE_MAX) c->take[c->mmproj] = true;
}

static int choose_gguf(choice *c, const hub_listing *l, const choose_wish *w, err *e) {
    group *g = calloc(l->n, sizeof *g);
    size_t n_found = 0, at = SIZE_MAX, n;
    int    rc = 0;
    if (!g || !find_groups(l, g, &n)) {
        free(g);
        return err_set_nomem(e);
    }
    if (w->quant) {
        at = with_label(g, n, w->quant, false, &n_found);
        if (n_found == 0) at = with_label(g, n, w->quant, true, &n_found);
        if (n_found == 0) {
            char begin[96];
            snprintf(begin, sizeof begin, "has no %.40s; it has", w->quant);
            rc = list_choices(w, l, g, n, ERR_NOTFOUND, begin, e);
        }
    } else if (n == 1) {
        at = 0;
        n_found = 1;
    } else {
        for (size_t i = 0; i < sizeof preferred / sizeof *preferred && n_found == 0; i++)
            at = with_label(g, n, preferred[i], false, &n_found);
        if (n_found == 0) rc = list_choices(w, l, g, n, ERR_ARG, "has several models", e);
    }
    if (rc == 0 && n_found > 1) rc = list_choices(w, l, g, n, ERR_ARG, "has several models of that label", e);
    if (rc == 0) rc = take_group(c, l, g[at].first, e);
    free(g);
    return rc;
}

/* --- safetensors --- */

static bool is_weights(const char *path) {
    return !strchr(path, '/') && ends_fold(path, ".safetensors") && strncmp(path, "consolidated", 12) != 0;
}

/* Parts of a sentence-transformers folder: 1_Pooling/config.json, 2_Dense/model.safetensors. */
static bool is_module(const char *path) {
    const char *name = strchr(path, '/'), *kind = strchr(path, '_');
    if (!name || !kind || kind > name || kind == path || strspn(path, "0123456789") != (size_t)(kind - path))
        return false;
    size_t len = (size_t)(name - kind);
    bool   dense = len == 6 && strncmp(kind, "_Dense", 6) == 0, pooling = len == 8 && strncmp(kind, "_Pooling", 8) == 0;
    return ((dense || pooling) && strcmp(name, "/config.json") == 0) ||
           (dense && strcmp(name, "/model.safetensors") == 0);
}

static bool is_sidecar(const char *path) {
    for (size_t i = 0; i < sizeof sidecars / sizeof *sidecars; i++) {
        if (strcmp(path, sidecars[i]) == 0) return true;
    }
    if (is_module(path)) return true;
    if (ends_fold(path, ".jinja")) return !strchr(path, '/') || strncmp(path, "additional_chat_templates/", 26) == 0;
    return !strchr(path, '/') && ends_fold(path, ".tiktoken");
}

static int choose_safetensors(choice *c, const hub_listing *l, const choose_wish *w, err *e) {
    size_t n = 0, one = 0, index = SIZE_MAX, plain = SIZE_MAX;
    bool   config = false;
    c->folder = true;
    for (size_t i = 0; i < l->n; i++) {
        const char *path = l->files[i].path;
        if (is_sidecar(path)) c->take[i] = true;
        if (strcmp(path, "config.json") == 0) config = true;
        if (strcmp(path, "model.safetensors.index.json") == 0) index = i;
        if (strcmp(path, "model.safetensors") == 0) plain = i;
        if (is_weights(path)) {
            one = i;
            n++;
        }
    }
    if (!config) return err_set(e, ERR_NOTFOUND, "%s has safetensors files, but no config.json", w->repo);
    if (w->file) {
        int rc = named_file(l, w, &one, e);
        if (rc < 0) return rc;
        if (ends_fold(w->file, ".safetensors.index.json")) {
            index = one;
        } else if (ends_fold(w->file, ".safetensors")) {
            index = SIZE_MAX;
            plain = one;
        } else {
            return err_set(e, ERR_ARG, "%s is neither a safetensors file nor the index of some", w->file);
        }
    } else if (plain == SIZE_MAX && n == 1) {
        plain = one;
    }
    if (index != SIZE_MAX && plain != SIZE_MAX && !w->file) index = SIZE_MAX; /* one whole file is enough */
    c->index = index;
    c->main = index != SIZE_MAX ? index : plain;
    if (c->main == SIZE_MAX)
        return err_set(e, ERR_ARG, "%s has %zu safetensors files and no index; name one with --mlx-file", w->repo, n);
    c->take[c->main] = true;
    return 0;
}

/* The names of the weights are the values of "weight_map"; keys may be many, so nothing is built. */
int choose_weights(choice *c, const hub_listing *l, const char *text, size_t len, err *e) {
    json_reader r;
    json_event  ev;
    size_t      found = 0;
    int         rc = 0;
    bool        inside = false, next = false;
    map         files;
    map_init(&files);
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        if (!map_put(&files, l->files[i].path, strlen(l->files[i].path), i)) rc = err_set_nomem(e);
    }
    json_reader_init(&r, text, len);
    while (rc == 0 && (ev = json_next(&r)) != JSON_END) {
        if (ev == JSON_ERROR) {
            rc = err_set(e, ERR_FORMAT, "%s: %s", l->files[c->index].path, r.error.msg);
        } else if (ev == JSON_KEY && r.depth == 1) {
            next = view_eq_c(r.text, "weight_map");
        } else if (ev == JSON_OBJECT_BEGIN && next && r.depth == 2) {
            inside = true;
            next = false;
        } else if (ev == JSON_OBJECT_END && r.depth == 1) {
            inside = false;
        } else if (ev == JSON_STRING && inside && r.depth == 2) {
            uint64_t i;
            if (!map_get(&files, r.text.data, r.text.len, &i))
                rc = err_set(e, ERR_NOTFOUND, "%s names %.*s, which is not in the repository", l->files[c->index].path,
                             (int)(r.text.len < 200 ? r.text.len : 200), r.text.data);
            else
                c->take[i] = true;
            found++;
        }
    }
    json_reader_deinit(&r);
    map_deinit(&files);
    if (rc == 0 && found == 0) rc = err_set(e, ERR_FORMAT, "%s names no weights", l->files[c->index].path);
    return rc;
}

/* --- both --- */

int choose_files(choice *out, const hub_listing *l, const choose_wish *w, err *e) {
    bool gguf = false, safe = false;
    int  rc;
    *out = (choice){ .index = SIZE_MAX, .mmproj = SIZE_MAX, .take = calloc(l->n + 1, sizeof *out->take) };
    if (!out->take) return err_set_nomem(e);
    for (size_t i = 0; i < l->n; i++) {
        gguf = gguf || is_gguf(l->files[i].path);
        safe = safe || is_weights(l->files[i].path);
    }
    bool want_gguf = w->quant || w->format == PULL_GGUF || (w->format == PULL_ANY && gguf);
    if (w->file) want_gguf = ends_fold(w->file, ".gguf");
    if (!gguf && !safe)
        rc = err_set(e, ERR_NOTFOUND, "%s has neither GGUF nor safetensors files", w->repo);
    else if (want_gguf && w->file) {
        size_t at = 0;
        rc = named_file(l, w, &at, e);
        if (rc == 0) rc = take_group(out, l, at, e);
    } else if (want_gguf && !gguf)
        rc = err_set(e, ERR_NOTFOUND, "%s has no GGUF files; without a label or --gguf its safetensors are taken",
                     w->repo);
    else if (want_gguf)
        rc = choose_gguf(out, l, w, e);
    else if (!safe && !w->file)
        rc = err_set(e, ERR_NOTFOUND, "%s has no safetensors files; without --mlx its GGUF files are taken", w->repo);
    else
        rc = choose_safetensors(out, l, w, e);
    if (rc == 0 && want_gguf && !is_mmproj(l->files[out->main].path)) take_tower(out, l);
    if (rc < 0) choice_deinit(out);
    return rc;
}
