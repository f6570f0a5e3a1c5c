/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of a Modelfile, and the table of parameters. */
#include "registry/modelfile.h"

#include "base/nearest.h"
#include "config/page_keys.h"
#include "params/sampling_table.h"
#include "registry/modelfile_params.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_BYTES = 16 << 20, MAX_ITEMS = 1024 };

/* --- the table --- */

/* Ollama's words for sampling are the table's keys; those that only our sampler has come with them. */
#define SAMPLING(id, member, kind, key, low, high, dflt, group, env, flag, value, help)                                \
    { key, key, "sampling", PARAM_##kind, low, high },

const modelfile_param modelfile_params[] = {
    { "num_ctx", "context", NULL, PARAM_INT, 1, 1 << 24 },
    SAMPLING_TABLE(SAMPLING) /* from temperature to dynatemp_exponent */
    { "num_predict", "max_tokens", "sampling", PARAM_INT, -2, 1 << 24 },
    { "min_tokens", "min_tokens", "sampling", PARAM_INT, 0, 1 << 24 },
    { "stop", "stop", "sampling", PARAM_STOP, 0, 0 },
    { "cache_type", "type", "kv_cache", PARAM_PAGES, 0, 0 },
    { "cache_type_k", "type_k", "kv_cache", PARAM_PAGES, 0, 0 },
    { "cache_type_v", "type_v", "kv_cache", PARAM_PAGES, 0, 0 },
    { "precise_layers", "precise_layers", "kv_cache", PARAM_INT, -1, 1024 },
    /* how another engine is set up, or what it no longer has: nothing here answers to it */
    { "num_keep", NULL, NULL, PARAM_INT, -9e18, 9e18 },
    { "num_batch", NULL, NULL, PARAM_INT, -9e18, 9e18 },
    { "num_gpu", NULL, NULL, PARAM_INT, -9e18, 9e18 },
    { "main_gpu", NULL, NULL, PARAM_INT, -9e18, 9e18 },
    { "num_thread", NULL, NULL, PARAM_INT, -9e18, 9e18 },
    { "num_gqa", NULL, NULL, PARAM_INT, -9e18, 9e18 },
    { "tfs_z", NULL, NULL, PARAM_REAL, -1e9, 1e9 },
    { "use_mmap", NULL, NULL, PARAM_BOOL, 0, 0 },
    { "use_mlock", NULL, NULL, PARAM_BOOL, 0, 0 },
    { "numa", NULL, NULL, PARAM_BOOL, 0, 0 },
    { "low_vram", NULL, NULL, PARAM_BOOL, 0, 0 },
    { "f16_kv", NULL, NULL, PARAM_BOOL, 0, 0 },
    { "vocab_only", NULL, NULL, PARAM_BOOL, 0, 0 },
    { "logits_all", NULL, NULL, PARAM_BOOL, 0, 0 },
    { "penalize_newline", NULL, NULL, PARAM_BOOL, 0, 0 },
};
const size_t modelfile_n_params = sizeof modelfile_params / sizeof *modelfile_params;

/* --- the struct --- */

void modelfile_init(modelfile *m) {
    memset(m, 0, sizeof *m);
    str_init(&m->notes);
}

static void free_pairs(modelfile_pair *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(list[i].name);
        free(list[i].value);
    }
    free(list);
}

void modelfile_deinit(modelfile *m) {
    free(m->from);
    free(m->template_text);
    free(m->system);
    free(m->license);
    free(m->draft);
    free(m->mmproj);
    for (size_t i = 0; i < m->n_adapters; i++) free(m->adapters[i]);
    free(m->adapters);
    free_pairs(m->params, m->n_params);
    free_pairs(m->messages, m->n_messages);
    str_deinit(&m->notes);
    memset(m, 0, sizeof *m);
}

static int set(char **out, const char *text, err *e) {
    char *copy = strdup(text);
    if (!copy) return err_set_nomem(e);
    free(*out);
    *out = copy;
    return 0;
}

static int push_pair(modelfile_pair **list, size_t *n, const char *name, const char *value, int kind, err *e) {
    if (*n == MAX_ITEMS) return err_set(e, ERR_LIMIT, "more than %d parameters or messages", MAX_ITEMS);
    modelfile_pair *more = realloc(*list, (*n + 1) * sizeof **list);
    if (!more) return err_set_nomem(e);
    *list = more;
    more[*n] = (modelfile_pair){ strdup(name), strdup(value), kind };
    if (more[*n].name && more[*n].value) {
        ++*n;
        return 0;
    }
    free(more[*n].name);
    free(more[*n].value);
    return err_set_nomem(e);
}

static int unknown_param(const char *name, err *e) {
    const char *names[sizeof modelfile_params / sizeof *modelfile_params];
    for (size_t i = 0; i < modelfile_n_params; i++) names[i] = modelfile_params[i].name;
    const char *near = nearest_of(name, names, modelfile_n_params);
    if (near) return err_set(e, ERR_ARG, "there is no parameter '%.60s'; did you mean '%s'?", name, near);
    return err_set(e, ERR_ARG, "there is no parameter '%.60s'", name);
}

static int check_pages(const modelfile_param *p, const char *value, err *e) {
    const char *types = CONFIG_PAGE_TYPES "|auto", *at = types;
    size_t      n = strlen(value);
    while (at && (strncmp(at, value, n) != 0 || (at[n] && at[n] != '|') || n == 0)) {
        at = strchr(at, '|');
        at += at != NULL;
    }
    if (at && (strcmp(p->key, "type") == 0 || strcmp(value, "auto") != 0)) return 0;
    return err_set(e, ERR_ARG, "%s: '%.40s' is not a page type; there are %s", p->name, value, CONFIG_PAGE_TYPES);
}

static int check_value(const modelfile_param *p, const char *value, err *e) {
    char  *end = NULL;
    double number;
    if (p->kind == PARAM_STOP) return *value ? 0 : err_set(e, ERR_ARG, "stop: an empty text stops nothing");
    if (p->kind == PARAM_PAGES) return check_pages(p, value, e);
    if (p->kind == PARAM_BOOL)
        return strcmp(value, "true") == 0 || strcmp(value, "false") == 0
                   ? 0
                   : err_set(e, ERR_ARG, "%s must be true or false, not '%.40s'", p->name, value);
    errno = 0;
    number = p->kind == PARAM_INT ? (double)strtoll(value, &end, 10) : strtod(value, &end);
    if (!*value || *end || errno || number != number || strpbrk(value, "xXpPnN \t\n"))
        return err_set(e, ERR_ARG, "%s: '%.40s' is not %s", p->name, value,
                       p->kind == PARAM_INT ? "an integer" : "a number");
    if (number < p->min || number > p->max)
        return err_set(e, ERR_ARG, "%s: %s is not between %.10g and %.10g", p->name, value, p->min, p->max);
    return 0;
}

int modelfile_add_param(modelfile *m, const char *name, const char *value, err *e) {
    const modelfile_param *p = modelfile_params, *end = modelfile_params + modelfile_n_params;
    while (p < end && strcasecmp(p->name, name) != 0) p++;
    if (p == end) return unknown_param(name, e);
    int rc = check_value(p, value, e);
    if (rc < 0) return rc;
    if (!p->key) {
        str_printf(&m->notes, "%s is set aside: it sets up another engine\n", p->name);
        return 0;
    }
    for (size_t i = 0; p->kind != PARAM_STOP && i < m->n_params; i++) { /* the last one counts */
        if (strcmp(m->params[i].name, p->key) == 0) return set(&m->params[i].value, value, e);
    }
    return push_pair(&m->params, &m->n_params, p->key, value, p->kind, e);
}

int modelfile_add_message(modelfile *m, const char *role, const char *content, err *e) {
    static const char *const roles[] = { "system", "user", "assistant" };
    for (size_t i = 0; i < 3; i++) {
        if (strcasecmp(role, roles[i]) == 0) return push_pair(&m->messages, &m->n_messages, roles[i], content, 0, e);
    }
    return err_set(e, ERR_ARG, "the role of a message is system, user or assistant, not '%.40s'", role);
}

int modelfile_add_adapter(modelfile *m, const char *path, err *e) {
    if (!*path) return err_set(e, ERR_ARG, "ADAPTER needs a path");
    if (m->n_adapters == 64) return err_set(e, ERR_LIMIT, "more than 64 adapters");
    char **more = realloc(m->adapters, (m->n_adapters + 1) * sizeof *more);
    if (!more) return err_set_nomem(e);
    m->adapters = more;
    more[m->n_adapters] = strdup(path);
    return more[m->n_adapters] ? (m->n_adapters++, 0) : err_set_nomem(e);
}

/* --- templates --- */

/* Ollama's templates are Go's: an action begins with a field (.Prompt), a variable ($x), one of Go's
 * keywords, or a function before one of these. */
static bool is_go(const char *text) {
    static const char *const words[] = { "if ",    "range ",    "end",    "else",  "with ",
                                         "block ", "template ", "define", "break", "continue" };
    for (const char *p = text; (p = strstr(p, "{{")); p += 2) {
        const char *q = p + 2;
        if (*q == '-') q++;
        q += strspn(q, " \t\r\n");
        if (*q == '.' || *q == '$') return true;
        const char *argument = q + strspn(q, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (argument > q && argument[0] == ' ' && (argument[1] == '.' || argument[1] == '$')) return true;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            size_t n = strlen(words[i]);
            if (strncmp(q, words[i], n) == 0 && (words[i][n - 1] == ' ' || strchr(" -}", q[n]))) return true;
        }
    }
    return false;
}

int modelfile_set_template(modelfile *m, const char *text, err *e) {
    if (!is_go(text)) return set(&m->template_text, text, e);
    str jinja;
    str_init(&jinja);
    int rc = modelfile_go_template(text, &jinja, e);
    if (rc == 0) rc = set(&m->template_text, str_cstr(&jinja), e);
    str_deinit(&jinja);
    return rc;
}

/* --- lines --- */

typedef struct scanner {
    const char *at, *end;
    int         line; /* of at */
} scanner;

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static void skip_blanks(scanner *s) {
    while (s->at < s->end && is_blank(*s->at)) s->at++;
}

/* Up to a blank or the line's end. */
static view word(scanner *s) {
    const char *from = s->at;
    while (s->at < s->end && !is_blank(*s->at) && *s->at != '\n') s->at++;
    return (view){ from, (size_t)(s->at - from) };
}

static view line_rest(scanner *s) {
    const char *from = s->at, *stop = memchr(s->at, '\n', (size_t)(s->end - s->at));
    if (!stop) stop = s->end;
    s->at = stop < s->end ? stop + 1 : stop;
    s->line++;
    while (stop > from && is_blank(stop[-1])) stop--;
    return (view){ from, (size_t)(stop - from) };
}

/* The text of an instruction; *out is owned. */
static int read_text(scanner *s, char **out, err *e) {
    skip_blanks(s);
    const char *from = s->at;
    size_t      left = (size_t)(s->end - s->at);
    size_t      quotes = left >= 3 && memcmp(from, "\"\"\"", 3) == 0 ? 3 : left >= 1 && *from == '"' ? 1 : 0;
    int         first = s->line;
    view        v = line_rest(s);
    str         text;
    *out = NULL;
    if (quotes) {
        /* v grows line by line until it ends with the quotes */
        while (v.len < 2 * quotes || memcmp(v.data + v.len - quotes, "\"\"\"", quotes) != 0) {
            if (s->at == s->end) return err_set(e, ERR_FORMAT, "the quotes of line %d are not closed", first);
            view more = line_rest(s);
            v.len = (size_t)(more.data + more.len - from);
        }
        v = (view){ from + quotes, v.len - 2 * quotes };
    }
    str_init(&text);
    for (size_t i = 0; i < v.len; i++) { /* line ends are \n here, whoever wrote the file */
        if (v.data[i] != '\r' || i + 1 == v.len || v.data[i + 1] != '\n') str_push(&text, v.data[i]);
    }
    str_append(&text, "", 0);
    *out = str_ok(&text) ? strdup(str_cstr(&text)) : NULL;
    str_deinit(&text);
    return *out ? 0 : err_set_nomem(e);
}

/* A word, then the text of the line. */
static int read_pair(scanner *s, modelfile *m, bool param, err *e) {
    char *value = NULL, name[64];
    view  w;
    skip_blanks(s);
    w = word(s);
    if (w.len == 0)
        return err_set(e, ERR_FORMAT, param ? "PARAMETER needs a name and a value" : "MESSAGE needs a role");
    snprintf(name, sizeof name, "%.*s", (int)(w.len > 60 ? 60 : w.len), w.data);
    int rc = read_text(s, &value, e);
    if (rc == 0 && param && !*value) rc = err_set(e, ERR_FORMAT, "PARAMETER %s needs a value", name);
    if (rc == 0) rc = param ? modelfile_add_param(m, name, value, e) : modelfile_add_message(m, name, value, e);
    free(value);
    return rc;
}

static int add_license(modelfile *m, const char *text, err *e) {
    if (!m->license) return set(&m->license, text, e);
    str both;
    str_init(&both);
    str_printf(&both, "%s\n%s", m->license, text);
    int rc = str_ok(&both) ? set(&m->license, str_cstr(&both), e) : err_set_nomem(e);
    str_deinit(&both);
    return rc;
}

static int take_text(modelfile *m, int which, const char *text, err *e) {
    switch (which) {
    case 0:
        if (!*text) return err_set(e, ERR_FORMAT, "FROM needs a name or a path");
        if (m->from) return err_set(e, ERR_UNSUPPORTED, "a second FROM: models of several parts are not supported");
        return set(&m->from, text, e);
    case 1: return modelfile_set_template(m, text, e);
    case 2: return set(&m->system, text, e);
    case 3: return modelfile_add_adapter(m, text, e);
    case 4: return add_license(m, text, e);
    case 5:
        if (!*text) return err_set(e, ERR_FORMAT, "DRAFT needs a name or a path");
        return set(&m->draft, text, e);
    default: return 0;
    }
}

static int read_instruction(scanner *s, modelfile *m, view w, err *e) {
    static const char *const names[] = { "FROM",     "TEMPLATE", "SYSTEM", "ADAPTER",   "LICENSE", "DRAFT",
                                         "REQUIRES", "RENDERER", "PARSER", "PARAMETER", "MESSAGE" };
    enum { N = sizeof names / sizeof *names, FIRST_ASIDE = 6, LAST_ASIDE = 8 };
    char   name[64], *text = NULL;
    size_t i = 0;
    snprintf(name, sizeof name, "%.*s", (int)(w.len > 60 ? 60 : w.len), w.data);
    while (i < N && strcasecmp(names[i], name) != 0) i++;
    if (i == N) {
        const char *near = nearest_of(name, names, N);
        if (near) return err_set(e, ERR_FORMAT, "there is no instruction '%s'; did you mean %s?", name, near);
        return err_set(e, ERR_FORMAT, "there is no instruction '%s'", name);
    }
    if (i > LAST_ASIDE) return read_pair(s, m, i == LAST_ASIDE + 1, e);
    int rc = read_text(s, &text, e);
    if (rc == 0 && i >= FIRST_ASIDE) str_printf(&m->notes, "%s is set aside: it is about another program\n", names[i]);
    if (rc == 0) rc = take_text(m, (int)i, text, e);
    free(text);
    return rc;
}

static int check_bytes(const char *text, size_t bytes, err *e) {
    int line = 1;
    for (size_t i = 0; i < bytes;) {
        unsigned cp;
        size_t   n = utf8_decode(text + i, bytes - i, &cp);
        if (n == 0 || cp == 0) return err_set(e, ERR_FORMAT, "line %d: the text is not UTF-8", line);
        line += cp == '\n';
        i += n;
    }
    return 0;
}

static int read_all(modelfile *m, const char *text, size_t bytes, err *e) {
    scanner s = { text, text + bytes, 1 };
    int     rc;
    if (bytes > MAX_BYTES) return err_set(e, ERR_LIMIT, "it is longer than %d bytes", MAX_BYTES);
    if ((rc = check_bytes(text, bytes, e)) < 0) return rc;
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) s.at += 3;
    while (s.at < s.end) {
        skip_blanks(&s);
        view w = s.at < s.end && *s.at != '#' ? word(&s) : (view){ NULL, 0 };
        int  line = s.line;
        if (w.len == 0)
            (void)line_rest(&s);
        else if ((rc = read_instruction(&s, m, w, e)) < 0)
            return err_wrap(e, rc, "line %d", line);
    }
    if (!str_ok(&m->notes)) return err_set_nomem(e);
    return m->from ? 0 : err_set(e, ERR_FORMAT, "there is no FROM line");
}

int modelfile_parse(modelfile *m, const char *text, size_t bytes, const char *label, err *e) {
    modelfile_init(m);
    int rc = read_all(m, text, bytes, e);
    if (rc == 0) return 0;
    modelfile_deinit(m);
    return err_wrap(e, rc, "%s", label);
}
