/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/names.h"

#include "base/nearest.h"
#include "registry/known.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_TEXT = 1024, MAX_PART = 96, MAX_CHOICES = 6 };

/* --- characters --- */

static bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/* An owner, a repository, a model or a tag. */
static bool part_ok(view v) {
    if (v.len == 0 || v.len > MAX_PART || !(is_alnum(v.data[0]) || v.data[0] == '_')) return false;
    for (size_t i = 0; i < v.len; i++) {
        if (!is_alnum(v.data[i]) && !strchr("._-", v.data[i])) return false;
    }
    return true;
}

/* Parts between slashes, none empty, none that climbs. */
static bool inner_path_ok(view v) {
    size_t from = 0;
    if (v.len == 0 || v.len > 512) return false;
    for (size_t i = 0; i <= v.len; i++) {
        if (i < v.len && v.data[i] != '/') {
            unsigned char c = (unsigned char)v.data[i];
            if (c < 0x20 || c == 0x7f || c == '\\' || c == '?' || c == '#' || c == '%') return false;
            continue;
        }
        size_t n = i - from;
        if (n == 0 || n > 255 || (n <= 2 && v.data[from] == '.' && v.data[from + n - 1] == '.')) return false;
        from = i + 1;
    }
    return true;
}

static bool host_ok(view v) {
    if (v.len == 0 || v.len > 255 || !is_alnum(v.data[0])) return false;
    for (size_t i = 0; i < v.len; i++) {
        if (!is_alnum(v.data[i]) && !strchr(".-:", v.data[i])) return false;
    }
    return true;
}

static bool equal_fold(view v, const char *text) {
    return v.len == strlen(text) && strncasecmp(v.data, text, v.len) == 0;
}

static bool ends_fold(view v, const char *text) {
    size_t n = strlen(text);
    return v.len >= n && strncasecmp(v.data + v.len - n, text, n) == 0;
}

bool name_is_quant(view v) {
    static const char *const whole[] = { "F16", "BF16", "F32", "FP16", "FP32", "FP8" };
    static const char *const starts[] = { "Q", "IQ", "TQ", "MXFP", "NVFP" };
    if (v.len > 3 && strncasecmp(v.data, "UD-", 3) == 0) v = (view){ v.data + 3, v.len - 3 };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        if (equal_fold(v, whole[i])) return true;
    }
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t n = strlen(starts[i]);
        if (v.len <= n || v.len > 16 || strncasecmp(v.data, starts[i], n) != 0) continue;
        if (v.data[n] < '1' || v.data[n] > '8' || (v.len > n + 1 && v.data[n + 1] != '_')) continue;
        bool plain = true;
        for (size_t k = n; k < v.len; k++) plain = plain && (is_alnum(v.data[k]) || v.data[k] == '_');
        if (plain) return true;
    }
    return false;
}

/* --- reading --- */

void name_ref_deinit(name_ref *n) {
    free(n->path);
    free(n->host);
    free(n->owner);
    free(n->repo);
    free(n->file);
    free(n->quant);
    free(n->revision);
    free(n->tag);
    memset(n, 0, sizeof *n);
}

static int set(char **out, view v, err *e) {
    free(*out);
    *out = strndup(v.data, v.len);
    return *out ? 0 : err_set_nomem(e);
}

static int set_c(char **out, const char *text, err *e) { return set(out, view_of(text), e); }

/* Cuts v at the first c: the piece before it, and *rest behind it (NULL data where there is no c). */
static view cut(view v, char c, view *rest) {
    const char *at = v.len ? memchr(v.data, c, v.len) : NULL;
    *rest = (view){ NULL, 0 };
    if (!at) return v;
    size_t n = (size_t)(at - v.data);
    *rest = (view){ at + 1, v.len - n - 1 };
    return (view){ v.data, n };
}

static bool eat(view *v, const char *prefix) {
    size_t n = strlen(prefix);
    if (v->len < n || strncasecmp(v->data, prefix, n) != 0) return false;
    *v = (view){ v->data + n, v->len - n };
    return true;
}

static int bad(err *e, const char *text, const char *why) {
    return err_set(e, ERR_ARG, "'%.120s' is not a name of a model: %s", text, why);
}

/* owner/repo[:QUANT][/file][@revision] */
static int read_hf(name_ref *n, view v, const char *text, err *e) {
    view revision, rest, quant, file, owner, repo;
    int  rc;
    v = cut(v, '@', &revision);
    if (v.len && v.data[v.len - 1] == '/') v.len--;
    owner = cut(v, '/', &rest);
    repo = cut(rest, '/', &file);
    repo = cut(repo, ':', &quant);
    /* Addresses of the hub's pages. Behind a revision of its own such a word is a folder: so name_source writes it. */
    if (file.data && !revision.data && (eat(&file, "tree/") || eat(&file, "blob/") || eat(&file, "resolve/")))
        revision = cut(file, '/', &file);
    if (file.data && !quant.data) {
        const char *colon = memchr(file.data, ':', file.len);
        if (colon) return bad(e, text, "a file of a repository has no label");
    }
    n->kind = NAME_HF;
    if (!part_ok(owner) || !part_ok(repo)) return bad(e, text, "expected owner/repository");
    if (revision.data && !inner_path_ok(revision)) return bad(e, text, "the revision is none");
    if (file.data && quant.data) return bad(e, text, "it states a label and a file");
    if (file.data && !inner_path_ok(file)) return bad(e, text, "the path of the file is none");
    if (file.data && !ends_fold(file, ".gguf"))
        return bad(e, text, "a file of a repository that can be named alone ends in .gguf");
    if (quant.data && equal_fold(quant, "latest")) quant.data = NULL;
    if (quant.data && !part_ok(quant)) return bad(e, text, "the label behind ':' is none");
    if ((rc = set(&n->owner, owner, e)) < 0 || (rc = set(&n->repo, repo, e)) < 0) return rc;
    if (quant.data && (rc = set(&n->quant, quant, e)) < 0) return rc;
    if (file.data && (rc = set(&n->file, file, e)) < 0) return rc;
    return revision.data ? set(&n->revision, revision, e) : 0;
}

static bool has_host(view first, bool more) {
    return more &&
           (memchr(first.data, '.', first.len) || memchr(first.data, ':', first.len) || equal_fold(first, "localhost"));
}

/* [HOST/][user/]name[:tag] */
static int read_ollama(name_ref *n, view v, const char *text, err *e) {
    view rest, next, owner = view_of("library"), tag = view_of("latest"), first = cut(v, '/', &rest);
    int  rc;
    n->kind = NAME_OLLAMA;
    if (rest.data && has_host(first, true)) {
        if (!host_ok(first)) return bad(e, text, "the registry's host is none");
        /* ollama.com shows the pages of what registry.ollama.ai serves */
        bool usual = equal_fold(first, "registry.ollama.ai") || equal_fold(first, "ollama.com");
        if (!usual && (rc = set(&n->host, first, e)) < 0) return rc;
        first = cut(rest, '/', &rest);
    }
    if (rest.data) {
        owner = first;
        first = rest;
    }
    first = cut(first, ':', &next);
    if (next.data) tag = next;
    if (!part_ok(owner) || !part_ok(first) || !part_ok(tag))
        return bad(e, text, "letters, digits and . _ - in name[:tag], owner/repository or a path");
    if ((rc = set(&n->owner, owner, e)) < 0 || (rc = set(&n->repo, first, e)) < 0) return rc;
    return set(&n->tag, tag, e);
}

static size_t count_of(view v, char c) {
    size_t n = 0;
    for (size_t i = 0; i < v.len; i++) n += v.data[i] == c;
    return n;
}

static bool looks_like_path(view v) {
    static const char *const begin[] = { "/", "./", "../", "~/" };
    if (view_eq_c(v, ".") || view_eq_c(v, "..")) return true;
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++) {
        if (view_starts(v, begin[i])) return true;
    }
    return ends_fold(v, ".gguf") && count_of(v, '/') < 2;
}

/* A name with slashes and nothing that says whose it is. */
static int read_slashed(name_ref *n, view v, const char *text, err *e) {
    view rest, more, tag, first = cut(v, '/', &rest);
    view file = cut(v, '@', &more);
    bool is_file = ends_fold(file, ".gguf");
    if (equal_fold(first, "library") && count_of(v, '/') == 1) return read_ollama(n, v, text, e);
    if (!is_file && count_of(file, '/') == 2 && has_host(first, true)) {
        n->explicit_kind = true;
        return read_ollama(n, v, text, e);
    }
    (void)cut(rest, ':', &tag);
    tag = cut(tag, '@', &more);
    if (!is_file && tag.data && count_of(v, '/') == 1 && !more.data && !equal_fold(tag, "latest") &&
        !name_is_quant(tag))
        return read_ollama(n, v, text, e);
    return read_hf(n, v, text, e);
}

static int read_any(name_ref *n, const char *text, err *e) {
    view v = view_of(text), whole = v;
    if (v.len == 0) return bad(e, text, "it is empty");
    if (v.len > MAX_TEXT) return bad(e, text, "it is too long");
    n->explicit_kind = true;
    if (eat(&v, "hf://") || eat(&v, "https://huggingface.co/") || eat(&v, "https://hf.co/") ||
        eat(&v, "huggingface.co/") || eat(&v, "hf.co/"))
        return read_hf(n, v, text, e);
    if (eat(&v, "ollama://") || eat(&v, "https://ollama.com/")) return read_ollama(n, v, text, e);
    n->explicit_kind = false;
    if (looks_like_path(whole)) {
        n->kind = NAME_PATH;
        return set_c(&n->path, text, e);
    }
    if (strstr(text, "://")) return bad(e, text, "hf:// and ollama:// are known");
    if (strcmp(text, "demo") == 0 || strcmp(text, "demo:latest") == 0) {
        n->kind = NAME_DEMO;
        return 0;
    }
    if (memchr(v.data, '/', v.len)) return read_slashed(n, v, text, e);
    const known_model *known = known_find(text);
    if (!known || known->ollama) return read_ollama(n, v, text, e);
    int rc = read_hf(n, view_of(known->repo), text, e); /* well known, but not to the Ollama registry */
    return rc < 0 ? rc : set_c(&n->quant, known->quant, e);
}

int name_parse(name_ref *out, const char *text, err *e) {
    memset(out, 0, sizeof *out);
    int rc = read_any(out, text, e);
    if (rc < 0) name_ref_deinit(out);
    return rc;
}

/* --- writing --- */

void name_alias(const name_ref *n, str *out) {
    switch (n->kind) {
    case NAME_DEMO: str_puts(out, "demo"); break;
    case NAME_PATH: str_puts(out, n->path); break;
    case NAME_HF:
        str_printf(out, "%s/%s", n->owner, n->repo);
        if (n->quant) str_printf(out, ":%s", n->quant);
        if (n->file) str_printf(out, "/%s", n->file);
        if (n->revision) str_printf(out, "@%s", n->revision);
        break;
    case NAME_OLLAMA:
        if (n->host) str_printf(out, "%s/", n->host);
        if (n->host || strcmp(n->owner, "library") != 0) str_printf(out, "%s/", n->owner);
        str_puts(out, n->repo);
        if (strcmp(n->tag, "latest") != 0) str_printf(out, ":%s", n->tag);
        break;
    }
}

void name_source(const name_ref *n, str *out) {
    if (n->kind == NAME_HF) {
        str_puts(out, "hf://");
        name_alias(n, out);
    } else if (n->kind == NAME_OLLAMA) {
        str_printf(out, "ollama://%s%s%s/%s:%s", n->host ? n->host : "", n->host ? "/" : "", n->owner, n->repo, n->tag);
    } else {
        name_alias(n, out);
    }
}

const char *name_bytes(char out[16], double bytes) {
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB" };
    int                      i = 0;
    while (bytes >= 999.5 && i < 4) {
        bytes /= 1000;
        i++;
    }
    snprintf(out, 16, i == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, units[i]);
    return out;
}

/* --- finding --- */

static bool same_fold(const char *a, const char *b) { return a && b && strcasecmp(a, b) == 0; }

/* The label stands in the model's own quant, in its source or in its file's name. */
static bool has_quant(const registry_model *m, const name_ref *source, const char *quant) {
    if (same_fold(m->quant, quant) || same_fold(source->quant, quant)) return true;
    const char *file = source->file ? source->file : "";
    for (const char *p = file; (p = strcasestr(p, quant)); p++) {
        char before = p == file ? '-' : p[-1], after = p[strlen(quant)];
        if (!is_alnum(before) && before != '_' && !is_alnum(after) && after != '_') return true;
    }
    return false;
}

static bool format_ok(const registry_model *m, name_format f) {
    if (f == NAME_ANY_FORMAT) return true;
    bool gguf = m->format && strncasecmp(m->format, "gguf", 4) == 0;
    return gguf == (f == NAME_GGUF);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool file_ok(const registry_model *m, const name_ref *source, const char *file) {
    if (!file) return true;
    if (source->file && (strcmp(source->file, file) == 0 || strcmp(base_name(source->file), file) == 0)) return true;
    return strcmp(base_name(m->path), file) == 0;
}

static bool matches(const registry_model *m, const name_ref *want, const name_wish *w) {
    name_ref source;
    if (!m->source || name_parse(&source, m->source, NULL) < 0) return false;
    bool ok = source.kind == want->kind && same_fold(source.owner, want->owner) && same_fold(source.repo, want->repo);
    if (ok && want->kind == NAME_OLLAMA)
        ok = same_fold(source.tag, want->tag) && (!want->host || same_fold(want->host, source.host));
    if (ok && want->revision) ok = source.revision && strcmp(source.revision, want->revision) == 0;
    if (ok && want->file) ok = file_ok(m, &source, want->file);
    if (ok && want->quant) ok = has_quant(m, &source, want->quant);
    ok = ok && format_ok(m, w->format) && file_ok(m, &source, w->file);
    name_ref_deinit(&source);
    return ok;
}

static int ambiguous(const char *text, const registry_model *list, const size_t *at, size_t n, err *e) {
    str s;
    str_init(&s);
    for (size_t i = 0; i < n && i < MAX_CHOICES; i++) {
        char size[16];
        str_printf(&s, "%s%.80s (%s)", i ? ", " : "", list[at[i]].name, name_bytes(size, (double)list[at[i]].size));
    }
    if (n > MAX_CHOICES) str_printf(&s, " and %zu more", n - MAX_CHOICES);
    int rc = err_set(e, ERR_ARG, "'%.100s' may mean %s; say which", text, str_cstr(&s));
    str_deinit(&s);
    return rc;
}

/* The name that is rather meant; NULL: none is near. */
static const char *nearest_model(const char *text, const registry_model *list, size_t n) {
    const char *found = NULL;
    size_t      best = 5;
    const char *near[2] = { NULL, NULL };
    for (size_t i = 0; i < n; i++) {
        near[0] = list[i].name;
        size_t      d = nearest_distance(text, near[0]);
        const char *hit = d < best ? nearest_of(text, near, 1) : NULL;
        if (!hit) continue;
        best = d;
        found = hit;
    }
    return found;
}

static int missing(const char *text, const registry_model *list, size_t n, err *e) {
    const char *found = nearest_model(text, list, n);
    if (found) return err_set(e, ERR_NOTFOUND, "there is no model '%.100s'; did you mean '%s'?", text, found);
    return err_set(e, ERR_NOTFOUND, "there is no model '%.100s'", text);
}

/* Several names for one file are one choice: the first of them. */
static size_t without_twins(const registry_model *list, size_t *at, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool twin = false;
        for (size_t k = 0; k < kept; k++) twin = twin || strcmp(list[at[k]].path, list[at[i]].path) == 0;
        if (!twin) at[kept++] = at[i];
    }
    return kept;
}

static int choose(const char *text, const name_wish *w, registry_model *list, size_t n, registry_model *out, err *e) {
    name_ref want;
    size_t   found = 0, *at = calloc(n ? n : 1, sizeof *at);
    int      rc;
    if (!at) return err_set_nomem(e);
    if (name_parse(&want, text, NULL) == 0) {
        for (size_t i = 0; i < n && (want.kind == NAME_HF || want.kind == NAME_OLLAMA); i++) {
            if (matches(&list[i], &want, w)) at[found++] = i;
        }
        name_ref_deinit(&want);
    }
    found = without_twins(list, at, found);
    if (found == 1) {
        *out = list[at[0]];
        memset(&list[at[0]], 0, sizeof list[0]);
        rc = 0;
    } else {
        rc = found ? ambiguous(text, list, at, found, e) : missing(text, list, n, e);
    }
    free(at);
    return rc;
}

int names_find(registry *r, const char *text, const name_wish *w, registry_model *out, err *e) {
    static const name_wish any = { NAME_ANY_FORMAT, NULL };
    registry_model        *list = NULL;
    size_t                 n = 0;
    int                    rc = registry_find(r, text, out, e);
    if (!w) w = &any;
    if (rc == 0 && (w->format != NAME_ANY_FORMAT || w->file)) {
        name_ref none = { 0 };
        if (format_ok(out, w->format) && file_ok(out, &none, w->file)) return 0;
        registry_model_deinit(out);
        rc = ERR_NOTFOUND;
    }
    if (rc != ERR_NOTFOUND) return rc;
    memset(out, 0, sizeof *out);
    if ((rc = registry_list(r, &list, &n, e)) < 0) return rc;
    rc = choose(text, w, list, n, out, e);
    for (size_t i = 0; i < n; i++) registry_model_deinit(&list[i]);
    free(list);
    return rc;
}

bool names_near(registry *r, const char *text) {
    registry_model *list = NULL;
    size_t          n = 0;
    bool            near = registry_list(r, &list, &n, NULL) == 0 && nearest_model(text, list, n) != NULL;
    for (size_t i = 0; i < n; i++) registry_model_deinit(&list[i]);
    free(list);
    return near;
}
