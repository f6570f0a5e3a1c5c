/* SPDX-License-Identifier: Apache-2.0 */
/* hearth serve: options and the environment become a host and a server; signals; the ready line. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/doctor.h"
#include "cli/models/catalogue.h"
#include "cli/models/models.h"
#include "cli/options.h"
#include "cli/serve/keys.h"
#include "cli/serve/library.h"
#include "cli/serve/log.h"
#include "cli/serve/options.h"
#include "cli/serve/service.h"
#include "cli/settings.h"
#include "hearth.h"
#include "runtime/demo.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct serve {
    const cli_args *args;
    settings        settings, latest; /* as the server started, and as read again */
    log_ring       *logs;
    engine_options  engine;
    host           *host;
    serve_library   library;
    chats          *chats;
    server         *server;
    bool            beyond_loopback;
    str             socket_path, default_model, adapter_dir;
    int             inherited[SERVICE_MAX_SOCKETS];
} serve;

/* --- models --- */

static bool is_pinned(const serve *s, const char *name) {
    static const char *const lists[] = { "models.pinned", "models.preload" };
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        const config_value *v = config_get(&s->settings.server, lists[l]);
        for (size_t i = 0; i < v->n_texts; i++)
            if (strcmp(v->texts[i], name) == 0) return true;
    }
    return false;
}

/* --mmproj NAME=FILE of this model; NULL: none. */
static const char *tower_of(const serve *s, const char *name) {
    const char *spec;
    for (int i = 0; (spec = cli_string_at(s->args, "mmproj", i)); i++) {
        size_t n = strlen(name);
        if (strncmp(spec, name, n) == 0 && spec[n] == '=') return spec + n + 1;
    }
    return NULL;
}

static int check_towers(const serve *s, err *e) {
    const char *spec;
    for (int i = 0; (spec = cli_string_at(s->args, "mmproj", i)); i++) {
        const char *equals = strchr(spec, '=');
        if (!equals || equals == spec) return err_set(e, ERR_ARG, "--mmproj %s: expected NAME=FILE", spec);
        if (!file_exists(equals + 1)) return err_set(e, ERR_NOTFOUND, "--mmproj %s: there is no such file", spec);
    }
    return 0;
}

static int add_with(serve *s, const char *name, const char *path, const config_values *entry, err *e) {
    model_settings m;
    int            rc = settings_model(&s->settings, s->args, name, entry, &m, e);
    if (rc < 0) return rc;
    if (s->default_model.len == 0) str_puts(&s->default_model, name);
    const char *tower = tower_of(s, name);
    if (tower) {
        m.runtime.mmproj = tower;
        m.runtime.mmproj_may_fail = false;
    }
    host_model_options o = { .settings = &m.runtime,
                             .keep_alive_ms = HOST_KEEP_DEFAULT,
                             .pinned = m.model.pinned || is_pinned(s, name) };
    if (m.model.keep_alive_set)
        o.keep_alive_ms = m.model.keep_alive_s < 0 ? HOST_KEEP_FOREVER : (int64_t)(m.model.keep_alive_s * 1000);
    rc = host_add_model_with(s->host, name, path, &o, e);
    model_settings_deinit(&m);
    return rc;
}

static int add_named(serve *s, const char *name, const char *path, err *e) { return add_with(s, name, path, NULL, e); }

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Every *.gguf and every directory with a config.json; the name is the file's without its ending. */
static int add_directory(serve *s, const char *dir, err *e) {
    DIR   *d = opendir(dir);
    char  *names[1024];
    size_t n = 0;
    int    rc = 0;
    if (!d) return err_set_errno(e, "cannot read %s", dir);
    for (struct dirent *f; (f = readdir(d)) && n < sizeof names / sizeof names[0];) {
        if (f->d_name[0] != '.' && (names[n] = strdup(f->d_name))) n++;
    }
    closedir(d);
    qsort(names, n, sizeof names[0], by_name);
    for (size_t i = 0; i < n; i++) {
        char  *path = path_join(dir, names[i]), *config = path ? path_join(path, "config.json") : NULL;
        size_t len = strlen(names[i]);
        bool   gguf = len > 5 && strcasecmp(names[i] + len - 5, ".gguf") == 0;
        if (gguf) names[i][len - 5] = '\0';
        if (rc == 0 && config && (gguf || file_exists(config))) rc = add_named(s, names[i], path, e);
        free(path);
        free(config);
        free(names[i]);
    }
    return rc;
}

/* One of `hearth list`; what the server was started with keeps its name. */
static int add_registered(void *ctx, const char *name, const char *path, err *e) {
    return add_named(ctx, name, path, e);
}

static int add_flagged(serve *s, err *e) {
    const char    *spec;
    cli_model      m;
    cli_model_wish wish;
    int            rc = cli_model_wish_read(&wish, s->args, e);
    for (int i = 0; rc == 0 && (spec = cli_string_at(s->args, "model", i)); i++) {
        const char *equals = strchr(spec, '=');
        char        name[128];
        if (!equals || equals == spec || (size_t)(equals - spec) >= sizeof name)
            return err_set(e, ERR_ARG, "--model %s: expected NAME=PATH", spec);
        memcpy(name, spec, (size_t)(equals - spec));
        name[equals - spec] = '\0';
        if ((rc = cli_model_find(&m, equals + 1, &wish, e)) == 0) rc = add_named(s, name, m.path, e);
        cli_model_deinit(&m);
    }
    return rc;
}

/* models.list, which --model replaces. */
static int add_listed(serve *s, err *e) {
    const config_value *list = config_get(&s->settings.server, "models.list");
    char               *path = NULL;
    int                 rc = 0;
    for (size_t i = 0; rc == 0 && i < list->n_items; i++) {
        const config_values *entry = &list->items[i];
        rc = cli_model_path(&path, config_text(entry, "path"), e);
        if (rc == 0) rc = add_with(s, config_text(entry, "name"), path, entry, e);
        free(path);
        if (rc < 0) return err_wrap(e, rc, "%s: models.list[%zu]", list->where, i);
    }
    return rc;
}

static int choose_default(serve *s, err *e) {
    const config_value *v = config_get(&s->settings.server, "models.default");
    host_model          found;
    if (!v->origin || !*v->text) return 0;
    if (host_find(s->host, view_of(v->text), &found, NULL) < 0)
        return err_set(e, ERR_NOTFOUND, "%s: models.default: no model '%.60s' is offered", v->where, v->text);
    str_clear(&s->default_model);
    str_puts(&s->default_model, v->text);
    return 0;
}

/* Without it there is one model less. */
static int add_shipped(serve *s, const char *name, err *e) {
    char *path = NULL;
    err   why = { 0 };
    int   rc = 0;
    if (cli_model_path(&path, name, &why) == 0)
        rc = add_named(s, name, path, e);
    else
        log_info("serve", "%s", why.msg);
    free(path);
    return rc;
}

static int check_preloaded(const serve *s, err *e) {
    const config_value *v = config_get(&s->settings.server, "models.preload");
    host_model          found;
    for (size_t i = 0; i < v->n_texts; i++) {
        if (host_find(s->host, view_of(v->texts[i]), &found, NULL) < 0)
            return err_set(e, ERR_NOTFOUND, "%s: models.preload: no model '%.60s' is offered", v->where, v->texts[i]);
    }
    return 0;
}

static int add_models(serve *s, err *e) {
    const char *dir = config_text(&s->settings.server, "models.directory");
    int         rc = check_towers(s, e);
    if (rc == 0) rc = cli_string(s->args, "model", NULL) ? add_flagged(s, e) : add_listed(s, e);
    if (rc == 0 && dir) rc = add_directory(s, dir, e);
    if (rc == 0 && !s->default_model.len) {
        rc = add_shipped(s, RUNTIME_DEMO, e);
        if (rc == 0) rc = add_shipped(s, RUNTIME_VISION_DEMO, e);
        if (rc == 0) rc = serve_library_open(&s->library, s->host, add_registered, s, e);
    }
    if (rc == 0) rc = check_preloaded(s, e);
    return rc < 0 ? rc : choose_default(s, e);
}

/* The server listens already, and answers what it is asked meanwhile. */
static void preload(const serve *s) {
    const config_value *v = config_get(&s->settings.server, "models.preload");
    for (size_t i = 0; i < v->n_texts; i++) (void)host_want(s->host, view_of(v->texts[i]), NULL);
}

/* Where workers find adapters that are added later. Without a home there are none. */
static void make_adapter_dir(serve *s) {
    char *path = NULL;
    err   e = { 0 };
    if (catalogue_path(&path, &e) < 0) return;
    str_printf(&s->adapter_dir, "%.*s/adapters", (int)(strrchr(path, '/') - path), path);
    if (dir_make(str_cstr(&s->adapter_dir), &e) < 0) {
        log_warn("serve", "%s", e.msg);
        str_clear(&s->adapter_dir);
    }
    free(path);
}

static int open_host(serve *s, err *e) {
    host_options o;
    int          rc = serve_host_options(&s->settings, &o, e);
    make_adapter_dir(s);
    if (s->adapter_dir.len) o.runtime.adapter_dir = str_cstr(&s->adapter_dir);
    s->engine = o.runtime.engine;
    if (rc == 0) rc = host_open(&s->host, &o, e);
    return rc < 0 ? rc : add_models(s, e);
}

/* --- the server --- */

static bool is_loopback(const char *name) {
    return strcasecmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 || strcmp(name, "::1") == 0;
}

static void default_socket(str *out) {
    const char *dir = getenv("XDG_RUNTIME_DIR");
    if (dir && dir[0] == '/' && dir_exists(dir)) str_printf(out, "%s/hearth.sock", dir);
}

/* The service manager's sockets, and no others. */
static void take_over(const config_values *v, server_options *o) {
    static const char *const places[] = { "transport.host", "transport.port", "transport.socket" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (config_get(v, places[i])->origin)
            log_warn("serve", "%s: %s does not hold: the service manager has opened the sockets",
                     config_get(v, places[i])->where, places[i]);
    }
    o->tcp_host = o->socket_path = NULL;
}

static int open_server(serve *s, err *e) {
    const config_values *v = &s->settings.server;
    auth                *keys = NULL;
    if (config_bool(v, "transport.unix_socket") && !config_text(v, "transport.socket")) default_socket(&s->socket_path);
    server_options o;
    serve_server_options(v, &o);
    o.host = s->host;
    o.library = s->library.library;
    o.chats = s->chats;
    o.logs = s->logs;
    o.settings = v;
    o.settings_path = s->settings.path;
    o.engine = &s->engine;
    o.doctor = doctor_report;
    o.version = hearth_version();
    o.pictures.ca_file = getenv("SSL_CERT_FILE");
    if (o.pictures.ca_file && !*o.pictures.ca_file) o.pictures.ca_file = NULL;
    if (s->default_model.len) o.default_model = str_cstr(&s->default_model);
    if (s->socket_path.len) o.socket_path = str_cstr(&s->socket_path);
    o.inherited = s->inherited;
    o.n_inherited = service_sockets(s->inherited);
    if (!o.tls_cert != !o.tls_key) return err_set(e, ERR_ARG, "--tls-cert and --tls-key must be given together");
    if (o.n_inherited) take_over(v, &o);
    s->beyond_loopback = service_reaches_out(s->inherited, o.n_inherited) || (o.tcp_host && !is_loopback(o.tcp_host));
    int rc = serve_keys_load(&keys, v, s->beyond_loopback, e);
    if (rc < 0) return rc;
    if ((rc = server_open(&s->server, &o, keys, e)) < 0) auth_free(keys);
    return rc;
}

/* --- signals --- */

static server *the_server; /* for the handler */

static void on_signal(int number) {
    static volatile sig_atomic_t asked;
    int                          saved = errno;
    if (number == SIGHUP)
        server_signal(the_server, SERVER_RELOAD);
    else
        server_signal(the_server, asked++ ? SERVER_STOP : SERVER_DRAIN);
    errno = saved;
}

/* Everything is read again; what a running server can change is the log and the keys with their limits. */
static void reload(serve *s) {
    auth    *keys = NULL;
    settings again;
    err      e = { 0 };
    if (settings_load(&again, s->args, &e) < 0) {
        log_error("serve", "reload: the settings were not changed: %s", e.msg);
        settings_deinit(&again);
        return;
    }
    if (serve_log_set(&again.server, s->logs, &e) < 0) log_error("serve", "reload: %s", e.msg);
    if (serve_keys_load(&keys, &again.server, s->beyond_loopback, &e) < 0) {
        log_error("serve", "reload: the old keys are kept: %s", e.msg);
    } else {
        server_set_keys(s->server, keys);
        log_info("serve", "keys and log level were read again");
    }
    settings_deinit(&s->latest);
    s->latest = again;
    server_set_latest(s->server, &s->latest.server);
}

static void on_asked(void *ctx, int what) {
    if (what == SERVER_DRAIN) {
        service_notify("STOPPING=1");
        return;
    }
    service_notify_reloading();
    reload(ctx);
    service_notify("READY=1");
}

static void on_watchdog(void) { service_notify("WATCHDOG=1"); }

static void catch_signals(serve *s) {
    struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    the_server = s->server;
    sigemptyset(&act.sa_mask);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    server_on_signal(s->server, on_asked, s);
}

static void print_ready(const serve *s) {
    const char *tcp = config_text(&s->settings.server, "transport.host"), *path = server_socket_path(s->server);
    int         port = server_port(s->server);
    bool        colons = tcp && strchr(tcp, ':') != NULL;
    const char *scheme = config_text(&s->settings.server, "transport.tls_cert") ? "https" : "http";
    str         line, url;
    str_init(&line);
    str_init(&url);
    if (port) str_printf(&url, "%s://%s%s%s:%d", scheme, colons ? "[" : "", tcp, colons ? "]" : "", port);
    if (cli_flag(s->args, "ready-json")) {
        str_printf(&line, "{\"ready\":true,\"pid\":%ld,\"url\":", (long)getpid());
        if (port)
            str_put_json(&line, url.data, url.len);
        else
            str_puts(&line, "null");
        str_printf(&line, ",\"port\":%d,\"socket\":", port);
        if (path)
            str_put_json(&line, path, strlen(path));
        else
            str_puts(&line, "null");
        str_printf(&line, ",\"version\":\"%s\"}", hearth_version());
    } else {
        str_printf(&line, "hearth is ready:%s%s%s%s", port ? " " : "", str_cstr(&url), path ? " unix:" : "",
                   path ? path : "");
    }
    puts(str_cstr(&line));
    fflush(stdout);
    str_deinit(&line);
    str_deinit(&url);
    service_notify("READY=1");
}

static void raise_file_limit(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= r.rlim_max) return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

static int run(const cli_args *args) {
    serve s = { .args = args };
    err   e = { 0 };
    int   rc = settings_load(&s.settings, args, &e);
    if (rc == 0) rc = log_ring_open(&s.logs, &e);
    if (rc == 0) rc = serve_log_set(&s.settings.server, s.logs, &e);
    if (rc == 0) {
        raise_file_limit();
        str_init(&s.socket_path);
        str_init(&s.default_model);
        str_init(&s.adapter_dir);
        if ((rc = open_host(&s, &e)) == 0)
            rc = serve_chats_open(&s.chats, (uint64_t)config_int(&s.settings.server, "chats.bytes"), &e);
        if (rc == 0) rc = open_server(&s, &e);
    }
    if (rc == 0) {
        catch_signals(&s);
        double watchdog = service_watchdog();
        if (watchdog > 0) rc = server_every(s.server, watchdog, on_watchdog, &e);
    }
    if (rc == 0) {
        preload(&s);
        print_ready(&s);
        rc = server_run(s.server, &e);
    }
    serve_library_close(&s.library); /* its last lines, and ... */
    host_free(s.host);               /* ... the host's last events still reach the server */
    /* It has ended as it was asked to: who asks once more must not make another end of it. Ctrl-C still does. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_DFL);
    server_free(s.server);
    chats_close(s.chats);
    str_deinit(&s.socket_path);
    str_deinit(&s.default_model);
    str_deinit(&s.adapter_dir);
    settings_deinit(&s.settings);
    settings_deinit(&s.latest);
    log_set_sink(NULL, NULL, LOG_OFF);
    log_ring_free(s.logs);
    return rc == 0 ? CLI_OK : rc == ERR_ARG ? cli_usage_error(args, "%s", e.msg) : cli_fail(args, &e);
}

/* Every one of these but --model with its formats, --config, --no-config and --ready-json is a key of server.yaml
 * (config/server.c). */
const cli_option cli_serve_options[] = {
    { "host", CLI_STRING, "ADDRESS", "address to listen on; every address but loopback requires keys", 0 },
    { "port", CLI_INT, "N", "TCP port; 0: any free one (11434)", 'p' },
    { "model", CLI_STRING, "NAME=PATH", "offer only this model; may be repeated (all models)", 'm' },
    { "mmproj", CLI_STRING, "NAME=FILE", "vision tower of this model; may be repeated (the file beside the model)", 0 },
    { "model-dir", CLI_STRING, "DIR", "offer all GGUF files and model directories in DIR", 0 },
    { "mem-limit", CLI_STRING, "SIZE", "memory for loaded models, such as 8G, or none for no limit (80%)", 0 },
    { "max-loaded", CLI_INT, "N", "number of models that may be in memory at the same time (4)", 0 },
    { "keep-alive", CLI_STRING, "TIME", "unload a model this long after its last use (5m)", 0 },
    CLI_CTX_OPTION(0),
    { "parallel", CLI_INT, "N", "number of sequences that are computed at the same time; 0: 16, on a GPU 128 (0)", 0 },
    CLI_THREADS_OPTION,
    { "api-key-file", CLI_STRING, "FILE", "file of keys, one per line: [name:]key [rpm=N] [tpm=N]", 0 },
    CLI_CONFIG_OPTIONS,
    { "ready-json", CLI_FLAG, NULL, "print the ready line as JSON", 0 },
    { "listening", CLI_GROUP, NULL, "listening", 0 },
    { "socket", CLI_STRING, "PATH", "path of the Unix socket ($XDG_RUNTIME_DIR/hearth.sock)", 0 },
    { "no-tcp", CLI_FLAG, NULL, "do not listen on TCP", 0 },
    { "no-socket", CLI_FLAG, NULL, "do not listen on a Unix socket", 0 },
    { "no-ui", CLI_FLAG, NULL, "do not serve the web UI", 0 },
    { "tls-cert", CLI_STRING, "FILE", "certificate chain (PEM); turns on TLS for TCP", 0 },
    { "tls-key", CLI_STRING, "FILE", "private key of the certificate (PEM)", 0 },
    { "cors-origin", CLI_STRING, "ORIGIN", "allow web pages of this origin (or *) to send requests; may be repeated",
      0 },
    { "allow-host", CLI_STRING, "NAME", "allow this name in the Host header on loopback; may be repeated", 0 },
    { "allow-image-urls", CLI_STRING, "HOST", "fetch pictures of requests from this host by https; may be repeated",
      0 },
    { "models", CLI_GROUP, NULL, "models that --model names", 0 },
    CLI_MODEL_OPTIONS,
    { "keys", CLI_GROUP, NULL, "keys", 0 },
    { "token-file", CLI_STRING, "FILE", "file of the capability token, created at the first start (in XDG_STATE_HOME)",
      0 },
    { "rate-requests", CLI_REAL, "N", "requests per minute for keys without a limit of their own; 0: unlimited (0)",
      0 },
    { "rate-tokens", CLI_REAL, "N", "tokens per minute for keys without a limit of their own; 0: unlimited (0)", 0 },
    { "health-needs-key", CLI_FLAG, NULL, "require a key for /health and /metrics, too", 0 },
    { "limits", CLI_GROUP, NULL, "limits", 0 },
    CLI_DEVICE_OPTION,
    CLI_GPU_LAYERS_OPTION,
    CLI_EXPERTS_OPTION,
    { "cache-mb", CLI_INT, "N", "memory for the keys and values of a model in MiB; 0: two full sequences (0)", 0 },
    CLI_KV_OPTIONS,
    { "speculate", CLI_STRING, "WHO",
      "who guesses ahead: auto, off, lookup, draft, mtp, eagle; answers stay the same (auto)", 0 },
    { "draft-max", CLI_INT, "N", "number of tokens guessed in one step at most; 0: 16 (0)", 0 },
    { "max-body-mb", CLI_INT, "N", "largest request body in MiB (64)", 0 },
    { "max-connections", CLI_INT, "N", "number of connections that may be open at the same time (4096)", 0 },
    { "head-seconds", CLI_REAL, "S", "time limit for the head of a request (15)", 0 },
    { "body-seconds", CLI_REAL, "S", "time limit for the body of a request, plus a second per 16 KiB (20)", 0 },
    { "idle-seconds", CLI_REAL, "S", "time limit between two requests of a connection (75)", 0 },
    { "stall-seconds", CLI_REAL, "S", "disconnect a client that has read nothing for this long (30)", 0 },
    { "heartbeat-seconds", CLI_REAL, "S", "send a comment on a stream that was silent for this long (10)", 0 },
    { "drain-seconds", CLI_REAL, "S", "time that running requests have left after SIGTERM (30)", 0 },
    { "logs", CLI_GROUP, NULL, "logs", 0 },
    { "log-format", CLI_STRING, "FORMAT", "format of log lines: text or json (text)", 0 },
    { "log-level", CLI_STRING, "LEVEL", "lowest level that is logged: debug, info, warn, error or off (info)", 0 },
    { "log-level-file", CLI_STRING, "FILE", "file that contains the log level; read again on SIGHUP", 0 },
    { 0 },
};

const cli_command cli_cmd_serve = { "serve",
                                    "[--port N] [--model NAME=PATH]...",
                                    "Answer over HTTP: the OpenAI, Ollama and Anthropic APIs.",
                                    cli_serve_options,
                                    0,
                                    0,
                                    run };
