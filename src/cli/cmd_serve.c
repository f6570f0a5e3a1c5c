/* SPDX-License-Identifier: Apache-2.0 */
/* hearth serve: options and the environment become a host and a server; signals; the ready line. */
#include "base/file.h"
#include "cli/catalogue.h"
#include "cli/cli.h"
#include "cli/models.h"
#include "cli/serve_keys.h"
#include "cli/serve_workers.h"
#include "cli/service.h"
#include "hearth.h"
#include "server/server.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_LIST = 32, DEFAULT_PORT = 11434 };

typedef struct serve {
    const cli_args *args;
    host           *host;
    server         *server;
    bool            beyond_loopback;
    str             socket_path, default_model;
    const char     *origins[MAX_LIST], *hosts[MAX_LIST];
    int             inherited[SERVICE_MAX_SOCKETS];
} serve;

/* --- logs --- */

static void log_text(void *ctx, const log_record *r) {
    str line;
    (void)ctx;
    str_init(&line);
    log_format_text(r, &line);
    fputs(str_cstr(&line), stderr);
    str_deinit(&line);
}

static void log_json(void *ctx, const log_record *r) {
    str line;
    (void)ctx;
    str_init(&line);
    log_format_json(r, &line);
    fputs(str_cstr(&line), stderr);
    str_deinit(&line);
}

/* --log-level-file is read at the start and again on SIGHUP. */
static int read_level(const cli_args *a, log_level *out, err *e) {
    const char *name = cli_string(a, "log-level", NULL), *file = cli_string(a, "log-level-file", NULL);
    char       *text = NULL;
    size_t      n = 0;
    *out = LOG_INFO;
    if (!name && !file) name = getenv("HEARTH_LOG");
    if (file) {
        int rc = file_read(&text, &n, file, 4096, e);
        if (rc < 0) return rc;
        text[strcspn(text, " \t\r\n")] = '\0';
        name = text;
    }
    int rc = !name || log_level_parse(name, out)
                 ? 0
                 : err_set(e, ERR_ARG, "log level '%.20s': expected debug, info, warn, error or off", name);
    free(text);
    return rc;
}

static int set_logs(const cli_args *a, err *e) {
    const char *format = cli_string(a, "log-format", "text");
    log_level   level;
    int         rc = read_level(a, &level, e);
    if (rc < 0) return rc;
    if (strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
        return err_set(e, ERR_ARG, "--log-format %s: expected text or json", format);
    log_set_sink(strcmp(format, "json") == 0 ? log_json : log_text, NULL, level);
    return 0;
}

/* --- models --- */

static int add_named(serve *s, const char *name, const char *path, err *e) {
    if (s->default_model.len == 0) str_puts(&s->default_model, name);
    return host_add_model(s->host, name, path, e);
}

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

/* Everything of `hearth list`; the demo's name may have been given to another model. */
static int add_registered(serve *s, err *e) {
    registry       *r = NULL;
    registry_model *list = NULL;
    size_t          n = 0;
    int             rc = catalogue_open_existing(&r, e);
    if (rc == 0 && r) rc = registry_list(r, &list, &n, e);
    for (size_t i = 0; i < n; i++) {
        if (rc == 0 && strcmp(list[i].name, "demo") != 0) rc = add_named(s, list[i].name, list[i].path, e);
        registry_model_deinit(&list[i]);
    }
    free(list);
    registry_close(r);
    return rc;
}

static int add_models(serve *s, err *e) {
    const char *spec, *dir = cli_string(s->args, "model-dir", NULL);
    char       *path = NULL;
    int         rc = 0;
    for (int i = 0; rc == 0 && (spec = cli_string_at(s->args, "model", i)); i++) {
        const char *equals = strchr(spec, '=');
        char        name[128];
        if (!equals || equals == spec || (size_t)(equals - spec) >= sizeof name)
            return err_set(e, ERR_ARG, "--model %s: expected NAME=PATH", spec);
        memcpy(name, spec, (size_t)(equals - spec));
        name[equals - spec] = '\0';
        if ((rc = cli_model_path(&path, equals + 1, e)) == 0) rc = add_named(s, name, path, e);
        free(path);
    }
    if (rc == 0 && dir) rc = add_directory(s, dir, e);
    if (rc < 0 || s->default_model.len) return rc;
    if ((rc = cli_model_path(&path, "demo", e)) == 0) rc = add_named(s, "demo", path, e);
    free(path);
    return rc == 0 ? add_registered(s, e) : rc;
}

static int open_host(serve *s, err *e) {
    const cli_args *a = s->args;
    double          keep = cli_real(a, "keep-alive", 300);
    host_options    o = { .max_loaded = (int)cli_int(a, "max-loaded", 4),
                          .keep_alive_ms = keep < 0 ? HOST_KEEP_FOREVER : (int64_t)(keep * 1000) };
    long long       ctx = cli_int(a, "ctx", 0), threads = cli_int(a, "threads", 0), seqs = cli_int(a, "parallel", 0);
    long long       cache = cli_int(a, "cache-mb", 0);
    if (ctx < 0 || ctx > 1 << 24 || threads < 0 || threads > 1024 || seqs < 0 || seqs > 4096 || cache < 0)
        return err_set(e, ERR_ARG, "--ctx, --threads, --parallel or --cache-mb lies outside its range");
    o.runtime.engine.n_ctx = (int)ctx;
    o.runtime.engine.n_threads = (int)threads;
    o.runtime.engine.max_seqs = (int)seqs;
    o.runtime.engine.cache_bytes = (size_t)cache << 20;
    int rc = serve_workers(a, &o, e);
    if (rc == 0) rc = host_open(&s->host, &o, e);
    return rc < 0 ? rc : add_models(s, e);
}

/* --- the server --- */

static bool is_loopback(const char *name) {
    return strcasecmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 || strcmp(name, "::1") == 0;
}

static size_t read_list(const cli_args *a, const char *option, const char **out) {
    size_t n = 0;
    while (n < MAX_LIST && (out[n] = cli_string_at(a, option, (int)n))) n++;
    return n;
}

static void default_socket(str *out) {
    const char *dir = getenv("XDG_RUNTIME_DIR");
    if (dir && dir[0] == '/' && dir_exists(dir)) str_printf(out, "%s/hearth.sock", dir);
}

static int open_server(serve *s, err *e) {
    const cli_args *a = s->args;
    const char     *tcp = cli_flag(a, "no-tcp") ? NULL : cli_string(a, "host", "127.0.0.1");
    long long       port = cli_int(a, "port", DEFAULT_PORT);
    auth           *keys = NULL;
    if (port < 0 || port > 65535) return err_set(e, ERR_ARG, "--port must lie between 0 and 65535");
    if (!cli_flag(a, "no-socket")) {
        if (cli_string(a, "socket", NULL))
            str_puts(&s->socket_path, cli_string(a, "socket", NULL));
        else
            default_socket(&s->socket_path);
    }
    server_options o = { .host = s->host,
                         .version = hearth_version(),
                         .default_model = str_cstr(&s->default_model),
                         .tcp_host = tcp,
                         .tcp_port = (int)port,
                         .socket_path = s->socket_path.len ? str_cstr(&s->socket_path) : NULL,
                         .inherited = s->inherited,
                         .n_inherited = service_sockets(s->inherited),
                         .tls_cert = cli_string(a, "tls-cert", NULL),
                         .tls_key = cli_string(a, "tls-key", NULL),
                         .cors_origins = s->origins,
                         .n_cors_origins = read_list(a, "cors-origin", s->origins),
                         .allow_hosts = s->hosts,
                         .n_allow_hosts = read_list(a, "allow-host", s->hosts),
                         .health_needs_key = cli_flag(a, "health-needs-key"),
                         .body_bytes = (size_t)cli_int(a, "max-body-mb", 64) << 20,
                         .max_connections = (int)cli_int(a, "max-connections", 4096),
                         .head_seconds = cli_real(a, "head-seconds", 0),
                         .idle_seconds = cli_real(a, "idle-seconds", 0),
                         .body_seconds = cli_real(a, "body-seconds", 0),
                         .stall_seconds = cli_real(a, "stall-seconds", 0),
                         .heartbeat_seconds = cli_real(a, "heartbeat-seconds", 0),
                         .drain_seconds = cli_real(a, "drain-seconds", 30) };
    if (!o.tls_cert != !o.tls_key) return err_set(e, ERR_ARG, "--tls-cert and --tls-key belong together");
    if (o.n_inherited) o.tcp_host = o.socket_path = NULL;
    s->beyond_loopback = o.n_inherited || (tcp && !is_loopback(tcp));
    int rc = serve_keys_load(&keys, a, s->beyond_loopback, e);
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

static void on_reload(void *ctx) {
    serve    *s = ctx;
    auth     *keys = NULL;
    err       e = { 0 };
    log_level level;
    if (read_level(s->args, &level, &e) < 0)
        log_error("serve", "reload: %s", e.msg);
    else
        log_set_level(level);
    if (serve_keys_load(&keys, s->args, s->beyond_loopback, &e) < 0) {
        log_error("serve", "reload: the old keys stay: %s", e.msg);
        return;
    }
    server_set_keys(s->server, keys);
    log_info("serve", "keys and log level were read again");
}

static void catch_signals(serve *s) {
    struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    the_server = s->server;
    sigemptyset(&act.sa_mask);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    server_on_reload(s->server, on_reload, s);
}

static void print_ready(const serve *s) {
    const char *tcp = cli_string(s->args, "host", "127.0.0.1"), *path = server_socket_path(s->server);
    int         port = server_port(s->server);
    bool        colons = strchr(tcp, ':') != NULL;
    const char *scheme = cli_string(s->args, "tls-cert", NULL) ? "https" : "http";
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
    int   rc = set_logs(args, &e);
    if (rc == 0) {
        raise_file_limit();
        str_init(&s.socket_path);
        str_init(&s.default_model);
        if ((rc = open_host(&s, &e)) == 0) rc = open_server(&s, &e);
    }
    if (rc == 0) {
        catch_signals(&s);
        print_ready(&s);
        rc = server_run(s.server, &e);
        service_notify("STOPPING=1");
    }
    host_free(s.host); /* its last events still reach the server */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    server_free(s.server);
    str_deinit(&s.socket_path);
    str_deinit(&s.default_model);
    return rc == 0 ? CLI_OK : rc == ERR_ARG ? cli_usage_error(args, "%s", e.msg) : cli_fail(args, &e);
}

static const cli_option options[] = {
    { "host", CLI_STRING, "ADDRESS", "where to listen; beyond loopback a key is needed (127.0.0.1)", 0 },
    { "port", CLI_INT, "N", "TCP port; 0: any free one (11434)", 'p' },
    { "socket", CLI_STRING, "PATH", "Unix socket ($XDG_RUNTIME_DIR/hearth.sock)", 0 },
    { "no-tcp", CLI_FLAG, NULL, "no TCP", 0 },
    { "no-socket", CLI_FLAG, NULL, "no Unix socket", 0 },
    { "model", CLI_STRING, "NAME=PATH", "a model to offer; several times (demo and what hearth list shows)", 'm' },
    { "model-dir", CLI_STRING, "DIR", "offer every GGUF file and model directory in it", 0 },
    { "max-loaded", CLI_INT, "N", "models in memory at once (4)", 0 },
    { "mem-limit", CLI_STRING, "SIZE", "their memory together, such as 8G; none: no limit (80% of what is free)", 0 },
    { "keep-alive", CLI_REAL, "SECONDS", "unload a model this long after its last request; negative: never (300)", 0 },
    { "ctx", CLI_INT, "N", "positions of a sequence; 0: the model's own, at most 8192 (0)", 0 },
    { "parallel", CLI_INT, "N", "sequences that compute at once; 0: the engine's own (0)", 0 },
    { "cache-mb", CLI_INT, "N", "memory for keys and values; 0: the engine's own (0)", 0 },
    { "threads", CLI_INT, "N", "threads; 0: one per core (0)", 't' },
    { "api-key-file", CLI_STRING, "FILE", "keys, one per line: [name:]key [rpm=N] [tpm=N]; also HEARTH_API_KEYS", 0 },
    { "token-file", CLI_STRING, "FILE", "the capability token, made at the first start (in XDG_STATE_HOME)", 0 },
    { "rate-requests", CLI_REAL, "N", "requests per minute of a key that states none; 0: unlimited (0)", 0 },
    { "rate-tokens", CLI_REAL, "N", "tokens per minute of a key that states none; 0: unlimited (0)", 0 },
    { "health-needs-key", CLI_FLAG, NULL, "/health and /metrics need a key too", 0 },
    { "cors-origin", CLI_STRING, "ORIGIN", "web pages of this origin may ask; * for all; several times", 0 },
    { "allow-host", CLI_STRING, "NAME", "a further name for the Host header on loopback; several times", 0 },
    { "tls-cert", CLI_STRING, "FILE", "certificate chain (PEM): TCP speaks TLS", 0 },
    { "tls-key", CLI_STRING, "FILE", "its key (PEM)", 0 },
    { "max-body-mb", CLI_INT, "N", "largest request body (64)", 0 },
    { "max-connections", CLI_INT, "N", "connections at once (4096)", 0 },
    { "head-seconds", CLI_REAL, "S", "time for a request's head (15)", 0 },
    { "body-seconds", CLI_REAL, "S", "time for a request's body, plus a second per 16 KiB (20)", 0 },
    { "idle-seconds", CLI_REAL, "S", "time between requests of a connection (75)", 0 },
    { "stall-seconds", CLI_REAL, "S", "a client that reads nothing for so long is dropped (30)", 0 },
    { "heartbeat-seconds", CLI_REAL, "S", "a comment goes into a stream that was silent for so long (10)", 0 },
    { "drain-seconds", CLI_REAL, "S", "after SIGTERM requests may end within this time (30)", 0 },
    { "log-format", CLI_STRING, "FORMAT", "text or json (text)", 0 },
    { "log-level", CLI_STRING, "LEVEL", "debug, info, warn, error or off (info)", 0 },
    { "log-level-file", CLI_STRING, "FILE", "holds the level; read again on SIGHUP", 0 },
    { "ready-json", CLI_FLAG, NULL, "the ready line on stdout is JSON", 0 },
    { 0 },
};

const cli_command cli_cmd_serve = { "serve",
                                    "[--port N] [--model NAME=PATH]...",
                                    "Answer over HTTP: the OpenAI, Ollama and Anthropic APIs.",
                                    options,
                                    0,
                                    0,
                                    run };
