/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that fail in the server while it answers (support/alloc_fail.h): a chat over a socket of its own, complete and
 * as a stream, by HTTP/1 and by gRPC. The model's worker is another process, and libevent, jansson and SQLite have memory of their own: what fails
 * is the server's and the host's. An answer is the whole one, an error of HTTP or within the stream, or, where not even that
 * can be written, a connection that ends.
 */
#include "unit/support/alloc_fail.h"
#include "unit/support/support.h"

#include "server/grpc/grpc.h"
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

/* --- the same by gRPC --- */

typedef struct call {
    const running *r;
    const char    *path;
    char           message[512];
    size_t         len;
    bool           stream;
} call;

static size_t put_frame(char *to, int type, int flags, int id, const void *payload, size_t n) {
    const char head[9] = { (char)(n >> 16), (char)(n >> 8), (char)n, (char)type, (char)flags, 0, 0, 0, (char)id };
    memcpy(to, head, sizeof head);
    if (n) memcpy(to + sizeof head, payload, n);
    return sizeof head + n;
}

/* A literal field of HPACK that nobody remembers. */
static size_t put_field(char *to, const char *name, const char *value) {
    return (size_t)sprintf(to + 1, "%c%s%c%s", (int)strlen(name), name, (int)strlen(value), value) + 1;
}

static size_t write_call(const call *c, char *to) {
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", no_table[] = { 0, 1, 0, 0, 0, 0 };
    char              head[512] = "";
    size_t            n = sizeof preface - 1, h = 0;
    memcpy(to, preface, n);
    n += put_frame(to + n, 4, 0, 0, no_table, sizeof no_table);
    h += put_field(head + h, ":method", "POST");
    h += put_field(head + h, ":scheme", "http");
    h += put_field(head + h, ":path", c->path);
    h += put_field(head + h, ":authority", "localhost");
    h += put_field(head + h, "content-type", "application/grpc");
    n += put_frame(to + n, 1, 4, 1, head, h);
    return n + put_frame(to + n, 0, 1, 1, c->message, c->len);
}

/* The texts of the field `inner` of messages in the field `outer`, or of the message itself. */
static void put_texts(view message, uint32_t outer, uint32_t inner, char *out) {
    pb_reader r = pb_reader_of(message);
    for (pb_item it; pb_next(&r, &it);) {
        if (outer && it.number == outer) put_texts(it.bytes, 0, inner, out);
        if (!outer && it.number == inner && it.wire == PB_LENGTH) strncat(out, it.bytes.data, it.bytes.len);
    }
}

/* Frames of the answer: its messages, one behind the other, and the last block of fields. False: it has no end. */
static bool read_answer(const char *bytes, size_t n, char *body, size_t *len, view *last) {
    *len = 0;
    for (size_t at = 0; at + 9 <= n;) {
        const unsigned char *p = (const unsigned char *)bytes + at;
        size_t               size = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        if (at + 9 + size > n) return false;
        if (p[3] == 0 && p[8] == 1) {
            memcpy(body + *len, p + 9, size);
            *len += size;
        }
        *last = (view){ bytes + at + 9, size };
        if (p[3] == 1 && p[8] == 1 && (p[4] & 1)) return true;
        if (p[3] == 3 || p[3] == 7) return false; /* reset, or the connection's end */
        at += 9 + size;
    }
    return false;
}

static int ask_by_call(void *ctx, char *result, err *e) {
    const call *c = ctx;
    static char answer[1 << 16], body[1 << 16], text[2048];
    /* "grpc-status" in HPACK's Huffman code, then a digit. */
    static const char ok[] = "\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x01"
                             "0",
                      down[] = "\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x02"
                               "14";
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)server_port(c->r->s)),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct timeval     limit = { .tv_sec = 60 };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t             at = 0, len = 0;
    view               last = { "", 0 };
    host_model         m;
    bool               whole = false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail_msg("no connection");
    (void)!send(fd, text, write_call(c, text), MSG_NOSIGNAL);
    for (ssize_t got; !whole && (got = recv(fd, answer + at, sizeof answer - at, 0)) > 0;) {
        at += (size_t)got;
        whole = read_answer(answer, at, body, &len, &last);
        if (!whole && last.len && last.data[-6] == 3) break; /* reset */
    }
    shutdown(fd, SHUT_WR);
    while (recv(fd, text, sizeof text, 0) > 0) {
    }
    close(fd);
    for (int ms = 0; host_find(c->r->h, view_of("demo"), &m, NULL) < 0 || m.active > 0; ms++) {
        assert_true(ms < 20000);
        usleep(1000);
    }
    result[0] = '\0';
    view rest = { body, len }, message;
    while (grpc_next(&rest, &message, NULL))
        put_texts(message, c->stream ? 0 : ANSWER_CHOICES,
                  c->stream ? (uint32_t)EVENT_CONTENT : (uint32_t)CHOICE_CONTENT, result);
    if (whole && memmem(last.data, last.len, ok, sizeof ok - 1) && result[0]) return 0;
    if (whole && !memmem(last.data, last.len, down, sizeof down - 1))
        return err_set(e, ERR_FORMAT, "the call ended in another way");
    return err_set(e, ERR_NOMEM, "the call failed, was reset, or its connection was closed");
}

static void make_call(call *c, const running *r, bool stream) {
    static const char question[] = "What is 12 plus 30?", zero[] = "\x09\0\0\0\0\0\0\0\0";
    str               out;
    *c = (call){ .r = r,
                 .stream = stream,
                 .path = stream ? "/hearth.v1.Inference/ChatStream" : "/hearth.v1.Inference/Chat" };
    str_init(&out);
    size_t at = grpc_open(&out);
    pb_put_text(&out, 1, view_of("demo"));
    size_t m = pb_open(&out, 2);
    pb_put_text(&out, 1, view_of("user"));
    pb_put_text(&out, 2, view_of(question));
    pb_close(&out, m);
    pb_put_text(&out, 7, (view){ zero, sizeof zero - 1 });
    pb_put_int(&out, 9, 4);
    grpc_close(&out, at);
    memcpy(c->message, out.data, out.len);
    c->len = out.len;
    str_deinit(&out);
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
    call one, many;
    make_call(&one, &r, false);
    make_call(&many, &r, true);
    alloc_fail_each(&(alloc_case){ .name = "a chat by gRPC", .run = ask_by_call, .ctx = &one, .keeps = true });
    alloc_fail_each(&(alloc_case){ .name = "a stream by gRPC", .run = ask_by_call, .ctx = &many, .keeps = true });
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
