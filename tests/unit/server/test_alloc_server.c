/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that fail in the server while it answers (support/alloc_fail.h): a chat over a socket of its own, complete and
 * as a stream. The model's worker is another process, and libevent, jansson and SQLite have memory of their own: what fails
 * is the server's and the host's. An answer is the whole one, an error of HTTP or within the stream, or, where not even that
 * can be written, a connection that ends.
 */
#include "unit/support/alloc_fail.h"
#include "unit/support/support.h"

#include "server/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct running {
    host     *h;
    server   *s;
    pthread_t thread;
    err       why;
    int       rc;
} running;

static void *serve(void *ctx) {
    running *r = ctx;
    r->rc = server_run(r->s, &r->why);
    return NULL;
}

/* Without a heap: everything that is answered until the server closes. */
static void exchange_bytes(const running *r, const char *body, char *answer, size_t cap) {
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)server_port(r->s)),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct timeval     limit = { .tv_sec = 60 };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char               text[2048];
    size_t             at = 0;
    int                n = snprintf(text, sizeof text,
                                    "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                                   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                                    strlen(body), body);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail_msg("no connection");
    (void)!send(fd, text, (size_t)n, MSG_NOSIGNAL);
    for (ssize_t got; at + 1 < cap && (got = recv(fd, answer + at, cap - 1 - at, 0)) > 0;) at += (size_t)got;
    answer[at] = '\0';
    close(fd);
}

/* Every "content":"..." of an answer, one behind the other. */
static void contents(const char *answer, char *out) {
    static const char key[] = "\"content\":\"";
    size_t            at = 0;
    for (const char *p = answer; (p = strstr(p, key));)
        for (p += sizeof key - 1; *p && *p != '"' && at + 1 < ALLOC_RESULT_MAX; p++) out[at++] = *p;
    out[at] = '\0';
}

typedef struct asked {
    const running *r;
    const char    *body, *end; /* what a whole answer ends with */
    bool           stream;
} asked;

static int ask(void *ctx, char *result, err *e) {
    const asked *a = ctx;
    static char  answer[1 << 16];
    host_model   m;
    exchange_bytes(a->r, a->body, answer, sizeof answer);
    for (int ms = 0; host_find(a->r->h, view_of("demo"), &m, NULL) < 0 || m.active > 0; ms++) {
        assert_true(ms < 20000);
        usleep(1000);
    }
    contents(answer, result);
    bool began = strncmp(answer, "HTTP/1.1 200 ", 13) == 0;
    if (began && result[0] && strstr(answer, a->end)) return 0;
    /* A 503 may be all that could be written, and a stream that has begun may end. */
    if (answer[0] && strncmp(answer, "HTTP/1.1 503 ", 13) != 0 && !(began && a->stream))
        return err_set(e, ERR_FORMAT, "%.300s", answer);
    return err_set(e, ERR_NOMEM, "%.300s", answer[0] ? answer : "the connection was closed");
}

static void test_exchange(void **state) {
    host_options ho = { .program = getenv("HEARTH_PROGRAM"),
                        .keep_alive_ms = HOST_KEEP_FOREVER,
                        .budget = { .on = { { DEVICE_CPU, HOST_NO_LIMIT } }, .n = 1 },
                        .runtime = { .engine = { .n_threads = 1 } } };
    auth        *keys = NULL;
    running      r = { .rc = -1 };
    err          e = { 0 };
    (void)state;
    if (host_open(&r.h, &ho, &e) < 0 ||
        host_add_model(r.h, "demo", HEARTH_SOURCE_DIR "/models/demo/draft.gguf", &e) < 0 || auth_open(&keys, &e) < 0)
        fail_msg("%s", e.msg);
    server_options so = { .host = r.h, .version = "test", .tcp_host = "127.0.0.1", .no_request_log = true };
    if (server_open(&r.s, &so, keys, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(pthread_create(&r.thread, NULL, serve, &r), 0);
    asked whole = { &r,
                    "{\"model\": \"demo\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}],"
                    " \"temperature\": 0, \"max_tokens\": 4}",
                    "\"usage\"", false },
          stream = { &r,
                     "{\"model\": \"demo\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}],"
                     " \"temperature\": 0, \"max_tokens\": 4, \"stream\": true}",
                     "data: [DONE]", true };
    alloc_fail_each(&(alloc_case){ .name = "a chat over HTTP", .run = ask, .ctx = &whole, .keeps = true });
    alloc_fail_each(&(alloc_case){ .name = "a stream over HTTP", .run = ask, .ctx = &stream, .keeps = true });
    server_signal(r.s, SERVER_DRAIN);
    pthread_join(r.thread, NULL);
    if (r.rc < 0) fail_msg("%s", r.why.msg);
    host_free(r.h);
    server_free(r.s);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_exchange) };
    if (!getenv("HEARTH_PROGRAM")) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
