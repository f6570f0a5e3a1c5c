/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/config, POST /v1/config/check, GET /v1/doctor: what holds and why, is a file right, is the machine in order. */
#include "config/server.h"
#include "server/handlers.h"
#include "server/http/json_out.h"
#include "server/internal.h"

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

static void put_setting(jw *w, const config_key *k, const config_value *v) {
    str value;
    str_init(&value);
    config_value_write(k, v, true, &value);
    jw_open(w, '{');
    jw_put_cstr(w, "key", k->path);
    jw_key(w, "value");
    jw_raw(w, (view){ str_cstr(&value), value.len });
    jw_put_cstr(w, "origin", config_origin_name(v->origin));
    jw_put_cstr(w, "where", v->where);
    jw_put_cstr(w, "default", k->dflt);
    jw_put_cstr(w, "help", k->help);
    jw_put_cstr(w, "env", k->env);
    jw_put_bool(w, "needs_restart", !is_live(k->path));
    jw_close(w, '}');
    str_deinit(&value);
}

void ops_config(exchange *x) {
    const config_values *v = x->server->options.settings;
    str                  b;
    str_init(&b);
    jw w = jw_list(&b);
    for (size_t i = 0; v && i < v->schema->n; i++) put_setting(&w, &v->schema->keys[i], &v->v[i]);
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

void ops_config_check(exchange *x) {
    config_report *r = arena_calloc(&x->arena, 1, sizeof *r);
    config_values  v;
    view           text;
    need_string(&x->in, &x->body, "yaml", &text);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    if (!r || !config_values_init(&v, &config_server_schema, &x->arena)) {
        exchange_error_nomem(x);
        return;
    }
    config_report_init(r, "server.yaml");
    config_values_defaults(&v, &x->arena);
    config_read(&v, text, CONFIG_FROM_SERVER, &x->arena, r);
    if (r->n == 0) config_server_check(&v, r);
    if (r->no_memory)
        exchange_error_nomem(x);
    else
        reply_report(x, r);
    config_report_deinit(r);
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
