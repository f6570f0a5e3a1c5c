/* SPDX-License-Identifier: Apache-2.0 */
/* hearth ps and hearth stop against a real server: over its Unix socket, over TCP, with and without a key. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "unit/support/model.h"
#include "unit/support/program.h"
#include "unit/support/serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void says(const char *arguments, const char *want) {
    char *got;
    int   status = program_run("", arguments, &got);
    if (status != 0 || !strstr(got, want)) fail_msg("%s: status %d, no \"%s\" in: %s", arguments, status, want, got);
    free(got);
}

/* Loads the demo as a client would. */
static void load(const serve_process *s) {
    static const char  ask[] = "POST /v1/models/load HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"model\":\"demo\"}";
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    char               answer[2048] = "";
    size_t             n = 0;
    int                fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(at.sun_path, s->socket, sizeof at.sun_path);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(write(fd, ask, sizeof ask - 1), sizeof ask - 1);
    for (ssize_t got; n < sizeof answer - 1 && (got = read(fd, answer + n, sizeof answer - 1 - n)) > 0;)
        n += (size_t)got;
    close(fd);
    if (!strstr(answer, "\"loaded\"")) fail_msg("%s", answer);
}

static void test_models(void **state) {
    char             *dir = test_temp_dir(), text[1024], *got;
    serve_process     s;
    arena             a;
    const json_value *v;
    int64_t           n;
    double            seconds;
    (void)state;
    serve_isolate(dir);
    serve_start(&s, dir, "--keep-alive 300");
    program_prints("", "ps --json", "[]\n"); /* the socket of XDG_RUNTIME_DIR is found */
    says("ps", "NAME");
    says("stop demo", "demo was not loaded");
    load(&s);
    assert_int_equal(program_run("", "ps --json", &got), 0);
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, got, strlen(got), &a, NULL), 0);
    assert_int_equal(json_count(v), 1);
    v = json_at(v, 0);
    assert_string_equal(json_cstr(json_get(v, "name")), "demo");
    assert_string_equal(json_cstr(json_get(v, "state")), "loaded");
    assert_true(json_int(json_get(v, "size"), &n) && n > 20000000);
    assert_true(json_int(json_get(v, "context"), &n) && n == 4096);
    assert_true(json_int(json_get(v, "active"), &n) && n == 0);
    assert_true(json_int(json_get(v, "memory"), &n) && n > 25000000);
    assert_true(json_int(json_get(v, "pid"), &n) && n > 1 && n != s.pid && kill((pid_t)n, 0) == 0);
    assert_true(json_number(json_get(v, "expires_seconds"), &seconds) && seconds > 200 && seconds <= 300);
    arena_deinit(&a);
    free(got);
    says("ps", "in 5 minutes");
    snprintf(text, sizeof text, "ps --host 127.0.0.1:%d", s.port);
    says(text, "demo");
    snprintf(text, sizeof text, "ps --host http://localhost:%d/", s.port);
    says(text, "demo");
    snprintf(text, sizeof text, "stop demo:latest --socket '%s'", s.socket);
    says(text, "demo:latest is unloaded");
    program_prints("", "ps --json", "[]\n");
    load(&s);
    says("stop --all", "demo is unloaded");
    program_fails("stop nobody", 1, "has no model 'nobody'");
    /* As server.yaml and the environment say. */
    setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
    snprintf(text, sizeof text, "%d", s.port);
    setenv("HEARTH_PORT", text, 1);
    says("ps", "NAME");
    unsetenv("HEARTH_PORT");
    snprintf(text, sizeof text, "transport: { socket: '%s', prot: 3 }\n", s.socket);
    char *yaml = path_join(dir, "hearth/server.yaml");
    test_write_file(yaml, text, strlen(text));
    says("ps", "NAME");
    free(yaml);
    setenv("XDG_RUNTIME_DIR", dir, 1);
    serve_stop(&s);
    program_fails("ps", 1, "no server answers at unix:");
    test_temp_dir_remove(dir);
}

static void test_keys(void **state) {
    char         *dir = test_temp_dir(), text[1024], *state_dir;
    serve_process s;
    (void)state;
    serve_isolate(dir);
    setenv("HEARTH_API_KEYS", "me:secret-key", 1);
    serve_start(&s, dir, "");
    unsetenv("HEARTH_API_KEYS");
    says("ps --api-key secret-key", "NAME");
    says("ps", "NAME"); /* by the owner's token */
    snprintf(text, sizeof text, "ps --host 127.0.0.1:%d --api-key wrong", s.port);
    program_fails(text, 1, "needs a key");
    state_dir = getenv("XDG_STATE_HOME") ? strdup(getenv("XDG_STATE_HOME")) : NULL;
    setenv("XDG_STATE_HOME", "/nonexistent", 1);
    program_fails("ps", 1, "needs a key: give --api-key or set HEARTH_API_KEY");
    setenv("HEARTH_API_KEY", "secret-key", 1);
    says("ps", "NAME");
    unsetenv("HEARTH_API_KEY");
    setenv("XDG_STATE_HOME", state_dir, 1);
    free(state_dir);
    serve_stop(&s);
    test_temp_dir_remove(dir);
}

static void test_nobody_there(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    serve_isolate(dir);
    program_fails("ps --host 127.0.0.1:1", 1, "no server answers at http://127.0.0.1:1; start one with 'hearth serve'");
    program_fails("stop demo --socket /nowhere/x.sock", 1, "no server answers at unix:/nowhere/x.sock");
    setenv("HEARTH_HOST", "127.0.0.1:1", 1);
    program_fails("ps --json", 1, "http://127.0.0.1:1;");
    unsetenv("HEARTH_HOST");
    program_fails("ps --host ''", 1, "no server");
    program_fails("ps --host http://", 2, "is not the address");
    program_fails("ps x", 2, "unexpected argument 'x'");
    program_fails("stop", 2, "an argument is missing");
    says("ps --help", "usage: hearth ps");
    says("stop --help", "usage: hearth stop");
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_nobody_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
