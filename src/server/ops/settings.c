/* SPDX-License-Identifier: Apache-2.0 */
/* GET and PUT /v1/config, POST /v1/config/check, GET /v1/doctor: what holds and why, a change of server.yaml, is a file
 * right, is the machine in order. */
#include "base/file.h"
#include "config/edit.h"
#include "config/server.h"
#include "server/handlers.h"
#include "server/http/json_out.h"
#include "server/internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* What a running server takes over on SIGHUP; all else needs a restart. */
static bool is_live(const char *path) {
    static const char *const live[] = { "telemetry.log_", "security.api_key", "security.rate_" };
    for (size_t i = 0; i < sizeof live / sizeof live[0]; i++) {
        if (strncmp(path, live[i], strlen(live[i])) == 0) return true;
    }
    return false;
}

static void put_value(jw *w, const char *name, const config_key *k, const config_value *v) {
    str value;
    str_init(&value);
    config_value_write(k, v, true, &value);
    jw_key(w, name);
    jw_raw(w, (view){ str_cstr(&value), value.len });
    str_deinit(&value);
}

/* Why a key is not changed from here: what protects the server, and names of files that it would read or write. */
static const char *why_fixed(const config_key *k) {
    if (strncmp(k->path, "security.", 9) == 0 || k->secret) return "protects the server";
    if (k->file) return "names a file";
    if (k->type == CONFIG_LIST || k->type == CONFIG_NAMED) return "is a list of maps";
    return NULL;
}

/* start: as the server began; now: as the sources were read last. */
static void put_setting(jw *w, const config_key *k, const config_value *start, const config_value *now) {
    const config_value *v = is_live(k->path) ? now : start;
    jw_open(w, '{');
    jw_put_cstr(w, "key", k->path);
    put_value(w, "value", k, v);
    jw_put_cstr(w, "origin", config_origin_name(v->origin));
    jw_put_cstr(w, "where", v->where);
    jw_put_cstr(w, "default", k->dflt);
    jw_put_cstr(w, "help", k->help);
    jw_put_cstr(w, "env", k->env);
    jw_put_bool(w, "needs_restart", !is_live(k->path));
    jw_put_bool(w, "can_change", !why_fixed(k));
    if (!config_value_same(k, v, now)) put_value(w, "after_restart", k, now);
    jw_close(w, '}');
}

void ops_config(exchange *x) {
    const config_values *v = x->server->options.settings, *now = x->server->latest ? x->server->latest : v;
    str                  b;
    str_init(&b);
    jw w = jw_list(&b);
    for (size_t i = 0; v && i < v->schema->n; i++) put_setting(&w, &v->schema->keys[i], &v->v[i], &now->v[i]);
    jw_list_end(&w);
    exchange_reply(x, 200, "application/json", &b);
}

static void reply_report(exchange *x, const config_report *r) {
    str    b;
    size_t n = r->n < CONFIG_MAX_PROBLEMS ? r->n : CONFIG_MAX_PROBLEMS;
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_bool(&w, "ok", r->n == 0);
    jw_put_int(&w, "problems", (int64_t)r->n);
    jw_key(&w, "data");
    jw_open(&w, '[');
    for (size_t i = 0; i < n; i++) {
        jw_open(&w, '{');
        jw_put_int(&w, "line", r->items[i].line);
        jw_put_int(&w, "column", r->items[i].column);
        jw_put_cstr(&w, "message", r->items[i].text);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

static bool check_text(exchange *x, view text, config_report *r) {
    config_values v;
    if (!config_values_init(&v, &config_server_schema, &x->arena)) return false;
    config_values_defaults(&v, &x->arena);
    config_read(&v, text, CONFIG_FROM_SERVER, &x->arena, r);
    if (r->n == 0) config_server_check(&v, r);
    return !r->no_memory;
}

void ops_config_check(exchange *x) {
    config_report *r = arena_calloc(&x->arena, 1, sizeof *r);
    view           text;
    need_string(&x->in, &x->body, "yaml", &text);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (!r) {
        exchange_error_nomem(x);
        return;
    }
    config_report_init(r, "server.yaml");
    if (check_text(x, text, r))
        reply_report(x, r);
    else
        exchange_error_nomem(x);
    config_report_deinit(r);
}

/* --- a change --- */

/* A value of JSON as a line of YAML has it. Words such as 5m or 512M are written bare: in quotes they would be texts. */
static bool yaml_of(exchange *x, const config_key *k, const node *v, str *out) {
    view text = node_text(v);
    bool bare = k->type != CONFIG_TEXT && text.len > 0;
    for (size_t i = 0; i < text.len; i++)
        bare = bare && (isalnum((unsigned char)text.data[i]) || (i > 0 && memchr("._-", text.data[i], 3)));
    if (node_is(v) == NODE_OBJECT) {
        reader_fail(&x->in, v, "must be a value");
        return false;
    }
    if (bare)
        str_append(out, text.data, text.len);
    else
        node_write(v, out);
    return true;
}

/* One key of the request into the text. */
static bool apply(exchange *x, const char *path, const node *v, str *text) {
    const config_key *k = config_find_key(&config_server_schema, path);
    const char       *fixed = k ? why_fixed(k) : NULL;
    str               value, next;
    err               e = { 0 };
    if (!k) reader_fail(&x->in, v, "there is no such setting");
    if (fixed) reader_fail(&x->in, v, "%s and is changed in server.yaml itself", fixed);
    if (x->in.failed) return false;
    str_init(&value);
    str_init(&next);
    bool ok = yaml_of(x, k, v, &value);
    if (ok && config_edit((view){ str_cstr(text), text->len }, &config_server_schema, k,
                          node_is(v) == NODE_ABSENT ? NULL : str_cstr(&value), &next, &e) < 0) {
        reader_fail(&x->in, v, "%s", e.msg);
        ok = false;
    }
    str_deinit(&value);
    str_deinit(text);
    *text = next;
    return ok;
}

/* A link stays one: what it points to is replaced. */
static int write_file(const char *path, const str *text, err *e) {
    file_replace f;
    char        *real = realpath(path, NULL);
    const char  *slash = strrchr(path, '/');
    char        *dir = !real && slash && slash > path ? strndup(path, (size_t)(slash - path)) : NULL;
    int          rc = dir ? dir_make(dir, e) : 0;
    free(dir);
    if (rc == 0) rc = file_replace_begin(&f, real ? real : path, e);
    free(real);
    if (rc < 0) return rc;
    fwrite(text->data ? text->data : "", 1, text->len, f.out); /* the commit sees what failed */
    return file_replace_commit(&f, e);
}

/* Reads, changes, checks and writes under the lock: changes of two pages do not lose each other. */
static bool change_file(exchange *x, const node *changes) {
    const char    *path = x->server->options.settings_path, *key;
    config_report *r = arena_calloc(&x->arena, 1, sizeof *r);
    char          *old = NULL;
    void          *cursor = NULL;
    size_t         bytes = 0;
    node           v;
    str            text;
    err            e = { 0 };
    int            rc = r ? 0 : err_set_nomem(&e);
    str_init(&text);
    if (rc == 0 && file_exists(path)) rc = file_read(&old, &bytes, path, CONFIG_MAX_BYTES, &e);
    if (old) str_append(&text, old, bytes);
    while (rc == 0 && !x->in.failed && node_next(changes, &cursor, &key, &v)) apply(x, key, &v, &text);
    if (rc == 0 && !x->in.failed) {
        config_report_init(r, "server.yaml");
        if (!check_text(x, (view){ str_cstr(&text), text.len }, r)) rc = err_set_nomem(&e);
        if (rc == 0) rc = config_report_result(r, &e);
        config_report_deinit(r);
    }
    bool same = old && text.len == bytes && memcmp(str_cstr(&text), old, bytes) == 0;
    if (rc == 0 && !x->in.failed && !same && (old || text.len)) rc = write_file(path, &text, &e);
    free(old);
    str_deinit(&text);
    if (x->in.failed)
        exchange_reject(x);
    else if (rc < 0)
        exchange_error_from(x, &e);
    return rc == 0 && !x->in.failed;
}

static void put_change(jw *w, const config_values *held, const char *path) {
    const config_key   *k = config_find_key(held->schema, path);
    const config_value *v = config_get(held, k->path);
    bool                over = v->origin > CONFIG_FROM_SERVER;
    jw_open(w, '{');
    jw_put_cstr(w, "key", k->path);
    jw_put_bool(w, "needs_restart", !is_live(k->path));
    jw_put_cstr(w, "overridden_by", over ? v->where : NULL);
    jw_close(w, '}');
}

/* Whoever may use the server, with a key or without, need not be whoever runs it. */
static bool admit_owner(exchange *x) {
    if (x->core->by_owner) return true;
    exchange_header(x, "WWW-Authenticate", "Bearer");
    exchange_error(x, 401, "token_needed", NULL,
                   "settings are changed with the server's token as key: security.token_file names its file, by "
                   "default ~/.local/state/hearth/token");
    return false;
}

void ops_config_put(exchange *x) {
    const config_values *held = x->server->options.settings;
    const char          *key;
    void                *cursor = NULL;
    node                 changes, v;
    str                  b;
    if (!ops_own_origin(x, "change settings")) return;
    if (!held || !x->server->options.settings_path) {
        exchange_error(x, 501, "not_offered", NULL, "this server was started without a server.yaml");
        return;
    }
    if (!admit_owner(x)) return;
    if (!read_object(&x->in, &x->body, "settings", &changes) && !x->in.failed)
        reader_fail(&x->in, &x->body, "settings: is required: an object of keys and values");
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    pthread_mutex_lock(&x->server->settings_lock);
    bool ok = change_file(x, &changes);
    pthread_mutex_unlock(&x->server->settings_lock);
    if (!ok) return;
    server_signal(x->server, SERVER_RELOAD);
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_cstr(&w, "path", x->server->options.settings_path);
    jw_key(&w, "data");
    jw_open(&w, '[');
    while (node_next(&changes, &cursor, &key, &v)) put_change(&w, held, key);
    jw_close(&w, ']');
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

void ops_doctor(exchange *x) {
    str b;
    if (!x->server->options.doctor) {
        exchange_error(x, 501, "not_offered", NULL, "this server cannot examine its machine");
        return;
    }
    str_init(&b);
    x->server->options.doctor(NULL, &b);
    exchange_reply(x, 200, "application/json", &b);
}
