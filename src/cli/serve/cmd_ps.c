/* SPDX-License-Identifier: Apache-2.0 */
/* hearth ps: the models in the running server. hearth stop: unloads some. */
#include "base/json.h"
#include "cli/options.h"
#include "cli/serve/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of a model's row, or null. */
static void put_number(str *out, const char *key, const json_value *m, const char *from) {
    double v;
    str_printf(out, ",\"%s\":", key);
    if (json_number(json_get(m, from), &v))
        str_printf(out, "%.15g", v);
    else
        str_puts(out, "null");
}

static void put_json(str *out, const json_value *m) {
    const char *name = json_cstr(json_get(m, "name")), *state = json_cstr(json_get(m, "state"));
    str_puts(out, "{\"name\":");
    str_put_json(out, name, strlen(name));
    str_puts(out, ",\"state\":");
    str_put_json(out, state, strlen(state));
    put_number(out, "size", m, "file_bytes");
    put_number(out, "memory", m, "memory_bytes");
    str_puts(out, ",\"device\":");
    const char *device = json_cstr(json_get(m, "device"));
    if (device)
        str_put_json(out, device, strlen(device));
    else
        str_puts(out, "null");
    put_number(out, "context", m, "context_length");
    put_number(out, "active", m, "active");
    put_number(out, "expires_seconds", m, "expires_seconds");
    put_number(out, "pid", m, "pid");
    str_push(out, '}');
}

static void put_bytes(char *out, size_t room, const json_value *v) {
    double bytes;
    if (json_number(v, &bytes))
        snprintf(out, room, "%.1f MB", bytes / 1e6);
    else
        snprintf(out, room, "-");
}

static void put_expiry(char *out, size_t room, const json_value *m) {
    double  s;
    int64_t active = 0;
    json_int(json_get(m, "active"), &active);
    if (!json_get(m, "expires_seconds"))
        snprintf(out, room, "-");
    else if (active > 0)
        snprintf(out, room, "in use");
    else if (!json_number(json_get(m, "expires_seconds"), &s))
        snprintf(out, room, "never");
    else if (s < 90)
        snprintf(out, room, "in %.0f seconds", s);
    else
        snprintf(out, room, "in %.0f minutes", s / 60);
}

static void put_row(str *out, const json_value *m) {
    char    size[32], memory[32], expiry[32];
    int64_t context = 0, active = 0;
    json_int(json_get(m, "context_length"), &context);
    json_int(json_get(m, "active"), &active);
    put_bytes(size, sizeof size, json_get(m, "file_bytes"));
    put_bytes(memory, sizeof memory, json_get(m, "memory_bytes"));
    put_expiry(expiry, sizeof expiry, m);
    const char *device = json_cstr(json_get(m, "device"));
    str_printf(out, "%-32s %-8s %12s %12s  %-8s %8lld %7lld  %s\n", json_cstr(json_get(m, "name")),
               json_cstr(json_get(m, "state")), size, memory, device ? device : "-", (long long)context,
               (long long)active, expiry);
}

/* The models of /v1/stats; the tree lives in a. */
static int ask_models(client *c, const json_value **out, arena *a, str *body, err *e) {
    const json_value *v;
    int               rc = client_get(c, "/v1/stats", NULL, body, e);
    if (rc < 0) return rc;
    rc = json_parse(&v, str_cstr(body), body->len, a, e);
    if (rc == 0 && !json_is(*out = json_get(v, "models"), JSON_K_ARRAY))
        rc = err_set(e, ERR_FORMAT, "the answer does not contain a list of models");
    for (size_t i = 0; rc == 0 && i < json_count(*out); i++) {
        const json_value *m = json_at(*out, i);
        if (!json_cstr(json_get(m, "name")) || !json_cstr(json_get(m, "state")))
            rc = err_set(e, ERR_FORMAT, "a model has no name or state");
    }
    return rc < 0 ? err_wrap(e, rc, "%s: this is not the answer of a Hearth server", client_where(c)) : 0;
}

static bool is_loaded(const json_value *m) { return strcmp(json_cstr(json_get(m, "state")), "unloaded") != 0; }

static int run_ps(const cli_args *a) {
    client           *c = NULL;
    const json_value *models = NULL;
    arena             mem;
    str               body, out;
    err               e = { 0 };
    bool              json = cli_flag(a, "json");
    size_t            n = 0;
    arena_init(&mem, 0);
    str_init(&body);
    str_init(&out);
    int rc = client_open(&c, a, &e);
    if (rc == 0) rc = ask_models(c, &models, &mem, &body, &e);
    for (size_t i = 0; rc == 0 && i < json_count(models); i++) {
        const json_value *m = json_at(models, i);
        if (!is_loaded(m)) continue;
        if (json) str_puts(&out, n ? ",\n " : "");
        (json ? put_json : put_row)(&out, m);
        n++;
    }
    if (rc == 0 && json)
        printf("[%s]\n", str_cstr(&out));
    else if (rc == 0)
        printf("%-32s %-8s %12s %12s  %-8s %8s %7s  %s\n%s", "NAME", "STATE", "SIZE", "MEMORY", "DEVICE", "CONTEXT",
               "ACTIVE", "UNLOADS", str_cstr(&out));
    client_free(c);
    arena_deinit(&mem);
    str_deinit(&body);
    str_deinit(&out);
    return rc == 0 ? CLI_OK : rc == ERR_ARG && !c ? cli_usage_error(a, "%s", e.msg) : cli_fail(a, &e);
}

static const json_value *find(const json_value *models, const char *name) {
    view bare = view_of(name);
    if (view_ends(bare, ":latest")) bare.len -= strlen(":latest");
    for (size_t i = 0; i < json_count(models); i++) {
        if (view_eq_c(bare, json_cstr(json_get(json_at(models, i), "name")))) return json_at(models, i);
    }
    return NULL;
}

static int stop_one(client *c, const json_value *models, const char *name, err *e) {
    const json_value *m = find(models, name);
    str               body, answer;
    if (!m) return err_set(e, ERR_NOTFOUND, "the server at %s has no model '%s'", client_where(c), name);
    if (!is_loaded(m)) {
        printf("%s was not loaded\n", name);
        return 0;
    }
    str_init(&body);
    str_init(&answer);
    str_puts(&body, "{\"model\":");
    str_put_json(&body, name, strlen(name));
    str_push(&body, '}');
    int rc = str_ok(&body) ? client_get(c, "/v1/models/unload", str_cstr(&body), &answer, e) : err_set_nomem(e);
    if (rc == 0) printf("%s is unloaded\n", name);
    str_deinit(&body);
    str_deinit(&answer);
    return rc;
}

static int run_stop(const cli_args *a) {
    client           *c = NULL;
    const json_value *models = NULL;
    arena             mem;
    str               body;
    err               e = { 0 };
    arena_init(&mem, 0);
    str_init(&body);
    int rc = client_open(&c, a, &e);
    if (rc == 0) rc = ask_models(c, &models, &mem, &body, &e);
    if (rc == 0 && cli_flag(a, "all")) {
        for (size_t i = 0; rc == 0 && i < json_count(models); i++) {
            const json_value *m = json_at(models, i);
            if (is_loaded(m)) rc = stop_one(c, models, json_cstr(json_get(m, "name")), &e);
        }
    }
    for (int i = 0; rc == 0 && i < cli_count(a); i++) rc = stop_one(c, models, cli_arg(a, i), &e);
    client_free(c);
    arena_deinit(&mem);
    str_deinit(&body);
    return rc == 0 ? CLI_OK : rc == ERR_ARG && !c ? cli_usage_error(a, "%s", e.msg) : cli_fail(a, &e);
}

static int run_stop_checked(const cli_args *a) {
    if (cli_count(a) == 0 && !cli_flag(a, "all")) return cli_usage_error(a, "an argument is missing");
    return run_stop(a);
}

static const cli_option ps_options[] = {
    CLI_JSON_OPTION,
    CLIENT_OPTIONS,
    { 0 },
};

static const cli_option stop_options[] = {
    { "all", CLI_FLAG, NULL, "unload every model", 0 },
    CLIENT_OPTIONS,
    { 0 },
};

const cli_command cli_cmd_ps = { "ps",       "[--json]", "List the models that the running server has in memory.",
                                 ps_options, 0,          0,
                                 run_ps };

const cli_command cli_cmd_stop = {
    "stop", "MODEL...",      "Unload models from the running server and end their requests.", stop_options, 0,
    -1,     run_stop_checked
};
