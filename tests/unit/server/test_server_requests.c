/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests between a handler, the host and the I/O thread: clients that leave and cancels that come before, while and
 * after the handler submits, events that are there before it returns, submissions that fail, a server that stops
 * meanwhile, and workers whose events make no sense. A gate in front of and behind host_submit holds the handler where
 * the test wants it.
 */
#include "unit/support/support.h"

#include "server/server.h"
#include "unit/support/runtime_support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = TEST_SANITIZED ? 60000 : 20000 };

/* --- the gate --- */

static struct {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  moved;
    int             calls;               /* of host_submit */
    unsigned        before, behind, bad; /* bits of the calls (the first is 1) that are held, or fail */
    int             held;
    bool            open;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };

typedef void host_event_fn(void *ctx, const host_event *ev);
int __real_host_submit(host *h, view model, const runtime_request *q, int64_t keep_alive_ms, host_event_fn *on_event,
                       void *ctx, uint64_t *id, err *e);
int __wrap_host_submit(host *h, view model, const runtime_request *q, int64_t keep_alive_ms, host_event_fn *on_event,
                       void *ctx, uint64_t *id, err *e);

/* With the gate locked. */
static void hold(bool here) {
    if (!here) return;
    gate.held++;
    pthread_cond_broadcast(&gate.moved);
    while (!gate.open) pthread_cond_wait(&gate.moved, &gate.lock);
    gate.held--;
}

int __wrap_host_submit(host *h, view model, const runtime_request *q, int64_t keep_alive_ms, host_event_fn *on_event,
                       void *ctx, uint64_t *id, err *e) {
    pthread_mutex_lock(&gate.lock);
    int      n = ++gate.calls;
    unsigned bit = n < 32 ? 1u << n : 0;
    hold(gate.before & bit);
    bool bad = gate.bad & bit, behind = gate.behind & bit;
    pthread_mutex_unlock(&gate.lock);
    int rc = bad ? err_set(e, ERR_BUSY, "the test says so")
                 : __real_host_submit(h, model, q, keep_alive_ms, on_event, ctx, id, e);
    pthread_mutex_lock(&gate.lock);
    hold(behind);
    pthread_mutex_unlock(&gate.lock);
    return rc;
}

static void gate_set(unsigned before, unsigned behind, unsigned bad) {
    pthread_mutex_lock(&gate.lock);
    gate.calls = 0;
    gate.before = before;
    gate.behind = behind;
    gate.bad = bad;
    gate.open = false;
    pthread_mutex_unlock(&gate.lock);
}

static void gate_open(void) {
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.lock);
}

static void gate_wait(int held) {
    pthread_mutex_lock(&gate.lock);
    while (gate.held < held) pthread_cond_wait(&gate.moved, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static int gate_calls(void) {
    pthread_mutex_lock(&gate.lock);
    int n = gate.calls;
    pthread_mutex_unlock(&gate.lock);
    return n;
}

/* --- a server of the test's own --- */

typedef struct running {
    host     *h;
    server   *s;
    pthread_t thread;
    err       why;
    int       rc;
} running;

static char *kept_env[8]; /* what sanitizers read */

static void *serve(void *ctx) {
    running *r = ctx;
    r->rc = server_run(r->s, &r->why);
    return NULL;
}

static void start(running *r, const char *fault) {
    host_options ho = { .program = getenv("HEARTH_PROGRAM"),
                        .keep_alive_ms = HOST_KEEP_DEFAULT,
                        .budget = { .on = { { DEVICE_CPU, HOST_NO_LIMIT } }, .n = 1 },
                        .runtime = { .engine = { .n_threads = 1 } },
                        .worker_env = kept_env,
                        .debug_fault = fault };
    auth        *keys = NULL;
    err          e = { 0 };
    *r = (running){ .rc = -1 };
    if (host_open(&r->h, &ho, &e) < 0 || host_add_model(r->h, "demo", TEST_DEMO, &e) < 0 || auth_open(&keys, &e) < 0)
        fail_msg("%s", e.msg);
    server_options so = { .host = r->h, .version = "test", .tcp_host = "127.0.0.1", .no_request_log = true };
    if (server_open(&r->s, &so, keys, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(pthread_create(&r->thread, NULL, serve, r), 0);
}

static void stop(running *r, int how) {
    server_signal(r->s, how);
    pthread_join(r->thread, NULL);
    if (r->rc < 0) fail_msg("%s", r->why.msg);
    host_free(r->h);
    server_free(r->s);
}

/* --- a client --- */

static int send_request(const running *r, const char *method, const char *path, const char *body) {
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)server_port(r->s)),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    str                text;
    str_init(&text);
    str_printf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", method, path);
    if (body) str_printf(&text, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    str_printf(&text, "\r\n%s", body ? body : "");
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, text.data, text.len, MSG_NOSIGNAL), (ssize_t)text.len);
    str_deinit(&text);
    return fd;
}

/* Everything until the server closes; the caller frees. */
static char *receive(int fd) {
    struct timeval limit = { .tv_sec = PATIENCE_MS / 1000 };
    str            text;
    char           part[4096];
    ssize_t        n;
    str_init(&text);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    while ((n = recv(fd, part, sizeof part, 0)) > 0) str_append(&text, part, (size_t)n);
    close(fd);
    return str_take(&text);
}

static char *ask(const running *r, const char *method, const char *path, const char *body) {
    return receive(send_request(r, method, path, body));
}

static void expect(char *answer, int status, const char *text) {
    char line[32];
    snprintf(line, sizeof line, "HTTP/1.1 %d ", status);
    if (!answer || strncmp(answer, line, strlen(line)) != 0 || !strstr(answer, text))
        fail_msg("expected %d with '%s', got: %.1500s", status, text, answer ? answer : "nothing");
    free(answer);
}

/* Until the list of requests holds this so often; "" is never in it. */
static void await(const running *r, const char *what, int count) {
    for (int ms = 0;; ms += 2) {
        char *list = ask(r, "GET", "/v1/requests", NULL);
        int   n = 0;
        for (const char *p = list; p && (p = strstr(p, what)); p++) n++;
        if (n == count) {
            free(list);
            return;
        }
        if (ms > PATIENCE_MS) fail_msg("%s is not there %d times: %s", what, count, list);
        free(list);
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
}

static void await_nobody(const running *r) { await(r, "\"id\"", 0); }

/* Cancels the newest request. */
static void cancel_newest(const running *r) {
    char *list = ask(r, "GET", "/v1/requests", NULL), *id = strstr(list, "\"id\":\"req-"), path[96];
    assert_non_null(id);
    snprintf(path, sizeof path, "/v1/requests/%.20s/cancel", id + 6);
    expect(ask(r, "POST", path, NULL), 200, "\"cancelled\":true");
    free(list);
}

/* Until the model's worker has nothing more to say. */
static void await_quiet(const running *r) {
    host_model m;
    for (int ms = 0; host_find(r->h, view_of("demo"), &m, NULL) == 0 && m.active; ms++) {
        if (ms > PATIENCE_MS) fail_msg("%d requests are still active", m.active);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

static const char ONE[] = "{\"model\": \"demo\", \"input\": \"a fox\"}";
static const char THREE[] = "{\"model\": \"demo\", \"input\": [\"a fox\", \"a lamp\", \"a boat\"]}";
static const char EMBED[] = "/v1/embeddings";

/* What an answer says about vectors. */
static char *vectors(char *answer) {
    char *data = answer ? strstr(answer, "\"data\":") : NULL;
    if (!data || strncmp(answer, "HTTP/1.1 200 ", 13) != 0) fail_msg("%.1000s", answer ? answer : "nothing");
    char *copy = strdup(data);
    free(answer);
    return copy;
}

/* --- moments --- */

/* In the queue before its handler: it is read, but never submitted. */
static void test_before(void **state) {
    const running *r = *state;
    for (int cancels = 0; cancels < 2; cancels++) {
        gate_set(1u << 1 | 1u << 2, 0, 0); /* both intake threads are held */
        int first = send_request(r, "POST", EMBED, ONE), second = send_request(r, "POST", EMBED, ONE);
        gate_wait(2);
        int third = send_request(r, "POST", EMBED, THREE);
        await(r, "\"reading\"", 3);
        if (cancels) {
            cancel_newest(r);
        } else {
            close(third);
            await(r, "\"ending\"", 1);
        }
        gate_open();
        expect(receive(first), 200, "embedding");
        expect(receive(second), 200, "embedding");
        if (cancels) expect(receive(third), 499, "the request was cancelled");
        await_nobody(r);
        assert_int_equal(gate_calls(), 2);
    }
}

/* Between two submissions: what was submitted is cancelled, the rest never is. */
static void test_while_submitting(void **state) {
    const running *r = *state;
    for (int cancels = 0; cancels < 2; cancels++) {
        gate_set(1u << 2, 0, 0);
        int fd = send_request(r, "POST", EMBED, THREE);
        gate_wait(1);
        if (cancels) {
            cancel_newest(r);
        } else {
            close(fd);
            await(r, "\"ending\"", 1);
        }
        gate_open();
        if (cancels) expect(receive(fd), 499, "the request was cancelled");
        await_nobody(r);
        await_quiet(r);
        assert_int_equal(gate_calls(), 2);
    }
}

/* All events are there before the handler has returned. */
static void test_behind(void **state) {
    const running *r = *state;
    gate_set(0, 0, 0);
    char *solo = vectors(ask(r, "POST", EMBED, THREE));
    for (int way = 0; way < 3; way++) { /* answered, client gone, cancelled */
        gate_set(0, 1u << 3, 0);
        int fd = send_request(r, "POST", EMBED, THREE);
        gate_wait(1);
        await_quiet(r);
        if (way == 1) {
            close(fd);
            await(r, "\"ending\"", 1);
        }
        if (way == 2) cancel_newest(r);
        gate_open();
        if (way == 0) {
            char *answer = vectors(receive(fd));
            assert_string_equal(answer, solo);
            free(answer);
        }
        if (way == 2) expect(receive(fd), 499, "the request was cancelled");
        await_nobody(r);
        assert_int_equal(gate_calls(), 3);
    }
    free(solo);
}

/* The second of three cannot be submitted: one answer, and nothing stays behind. */
static void test_failing(void **state) {
    const running *r = *state;
    for (int n = 1; n <= 3; n++) {
        gate_set(0, 0, 1u << n);
        expect(ask(r, "POST", EMBED, THREE), 503, "the test says so");
        await_nobody(r);
        await_quiet(r);
        assert_int_equal(gate_calls(), n);
    }
    gate_set(0, 0, 1u << 18); /* not the handler's, but the I/O thread's */
    str many;
    str_init(&many);
    str_puts(&many, "{\"model\": \"demo\", \"input\": [\"a\"");
    for (int i = 0; i < 39; i++) str_printf(&many, ", \"text %d\"", i);
    str_puts(&many, "]}");
    expect(ask(r, "POST", EMBED, str_cstr(&many)), 503, "the test says so");
    await_nobody(r);
    await_quiet(r);
    gate_set(0, 0, 0);
    char *all = vectors(ask(r, "POST", EMBED, str_cstr(&many)));
    int   n = 0;
    for (const char *p = all; (p = strstr(p, "\"index\"")); p++) n++;
    assert_int_equal(n, 40);
    assert_int_equal(gate_calls(), 40);
    free(all);
    str_deinit(&many);
    expect(ask(r, "POST", EMBED, "{\"model\": \"nobody\", \"input\": \"a\"}"), 404, "nobody");
}

/* The server stops while a handler submits. */
static void test_stops_meanwhile(void **state) {
    running r;
    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        start(&r, NULL);
        gate_set(behind ? 0 : 1u << 1, behind ? 1u << 1 : 0, 0);
        int fd = send_request(&r, "POST", EMBED, THREE);
        gate_wait(1);
        server_signal(r.s, SERVER_STOP);
        gate_open();
        stop(&r, SERVER_STOP);
        free(receive(fd));
    }
}

/* --- events that make no sense --- */

static uint64_t crashes(const running *r) {
    host_stats s;
    host_stat(r->h, &s);
    return s.crashes;
}

static void await_crashes(const running *r, uint64_t n) {
    for (int ms = 0; crashes(r) < n; ms += 2) {
        if (ms > PATIENCE_MS) fail_msg("the worker lives on");
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    await_quiet(r);
    assert_int_equal(crashes(r), n);
}

/* The first event, one in the middle, the last one: each fails its request, and its worker is ended once. */
static void test_broken_events(void **state) {
    static const char chat[] = "{\"model\": \"demo\", \"stream\": true, \"max_tokens\": 20, \"messages\": [{\"role\": "
                               "\"user\", \"content\": \"Tell me a story.\"}]}";
    static const char *const faults[] = { "demo=broken:1", "demo=broken:2", "demo=broken:3" };
    running                  r;
    (void)state;
    gate_set(0, 0, 0);
    for (int i = 0; i < 3; i++) {
        start(&r, faults[i]);
        expect(ask(&r, "POST", EMBED, ONE), 500, "said something that cannot be understood");
        await_crashes(&r, 1);
        /* In a stream that has begun it is an event of the stream. */
        expect(ask(&r, "POST", "/v1/chat/completions", chat), i ? 200 : 500, "cannot be understood");
        await_crashes(&r, 2);
        await_nobody(&r);
        stop(&r, SERVER_DRAIN);
    }
}

static int open_shared(void **state) {
    static const char *const names[] = { "ASAN_OPTIONS=", "TSAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=" };
    running                 *r = calloc(1, sizeof *r);
    int                      n = 0;
    for (char **v = environ; *v; v++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strncmp(*v, names[i], strlen(names[i])) == 0 && n < 7) kept_env[n++] = *v;
    }
    start(r, NULL);
    *state = r;
    return 0;
}

static int close_shared(void **state) {
    stop(*state, SERVER_DRAIN);
    free(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before),  cmocka_unit_test(test_while_submitting), cmocka_unit_test(test_behind),
        cmocka_unit_test(test_failing), cmocka_unit_test(test_stops_meanwhile),  cmocka_unit_test(test_broken_events),
    };
    if (!getenv("HEARTH_PROGRAM")) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
