/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor as a program: a machine in order, and one where many things are not. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "unit/support/model.h"
#include "unit/support/program.h"
#include "unit/support/serve.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static arena mem;

/* The findings of one run; fails unless it ends with this status. */
static const json_value *examine(int want_status) {
    char             *text;
    const json_value *v;
    err               e = { 0 };
    int               status = program_run("", "doctor --json", &text);
    char             *kept = arena_strdup(&mem, text);
    free(text);
    if (status != want_status) fail_msg("status %d: %s", status, kept);
    if (json_parse(&v, kept, strlen(kept), &mem, &e) < 0) fail_msg("%s: %s", e.msg, kept);
    return v;
}

/* A finding of this check with this status whose message holds the text; one that is not in order has a remedy. */
static void found(const json_value *v, const char *check, const char *status, const char *text) {
    const json_value *list = json_get(v, "checks");
    for (size_t i = 0; i < json_count(list); i++) {
        const json_value *c = json_at(list, i);
        if (strcmp(json_cstr(json_get(c, "check")), check) != 0 ||
            strcmp(json_cstr(json_get(c, "status")), status) != 0 || !strstr(json_cstr(json_get(c, "message")), text))
            continue;
        bool remedy = json_cstr(json_get(c, "remedy")) != NULL;
        assert_int_equal(remedy, strcmp(status, "ok") != 0);
        return;
    }
    str all;
    str_init(&all);
    json_write(list, &all);
    fail_msg("no %s finding of %s with \"%s\": %s", status, check, text, str_cstr(&all));
}

static char *put(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    test_write_file(path, text, strlen(text));
    return path;
}

static void make_dir(const char *dir, const char *name) {
    char *path = path_join(dir, name);
    assert_true(mkdir(path, 0700) == 0 || dir_exists(path));
    free(path);
}

static void test_in_order(void **state) {
    static const char *const checks[] = { "cpu",   "threads", "memory",   "pages",  "gpu",    "limits", "sandbox",
                                          "paths", "disk",    "registry", "config", "server", "demo" };
    char                    *dir = test_temp_dir(), *out;
    serve_process            s;
    (void)state;
    serve_isolate(dir);
    arena_init(&mem, 0);
    serve_start(&s, dir, "");
    const json_value *v = examine(0), *list = json_get(v, "checks");
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        bool there = false;
        for (size_t k = 0; k < json_count(list); k++)
            there = there || strcmp(json_cstr(json_get(json_at(list, k), "check")), checks[i]) == 0;
        if (!there) fail_msg("%s was not checked", checks[i]);
    }
    found(v, "demo", "ok", "12 plus 30 is 42.");
    found(v, "server", "ok", "is running at unix:");
    found(v, "registry", "ok", "");
    found(v, "config", "ok", "");
    serve_stop(&s);
    assert_int_equal(program_run("", "doctor", &out), 0);
    assert_non_null(strstr(out, "ok       demo"));
    assert_non_null(strstr(out, " 0 broken"));
    free(out);
    arena_deinit(&mem);
    test_temp_dir_remove(dir);
}

/* A program that is not Hearth: answers every request with the same text. Gives its port. */
static pid_t stranger(int *port) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          n = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *port = ntohs(at.sin_port);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
            char              request[1024];
            int               c = accept(fd, NULL, NULL);
            if (c < 0 || read(c, request, sizeof request) < 0 || write(c, answer, sizeof answer - 1) < 0) _exit(1);
            close(c);
        }
    }
    close(fd);
    return pid;
}

static void test_out_of_order(void **state) {
    char *dir = test_temp_dir(), *model = put(dir, "lost.gguf", ""), host[64], *command, *token;
    int   port, status;
    str   text;
    (void)state;
    serve_isolate(dir);
    arena_init(&mem, 0);
    /* A model whose file goes, a blob that nobody uses, a download that stopped. */
    str_init(&text);
    str_printf(&text, "cp '%s/models/demo/draft.gguf' '%s'", HEARTH_SOURCE_DIR, model);
    assert_int_equal(system(str_cstr(&text)), 0);
    str_clear(&text);
    str_printf(&text, "create lost '%s'", model);
    assert_int_equal(program_run("", str_cstr(&text), &command), 0);
    free(command);
    unlink(model);
    make_dir(dir, "hearth/blobs");
    free(put(dir, "hearth/blobs/sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "blob"));
    free(
        put(dir, "hearth/blobs/sha256-0000c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.partial", "bl"));
    /* Configuration with mistakes, a token that others can read, a stranger on the port. */
    free(put(dir, "hearth/server.yaml", "transport:\n  prot: 8080\nsecurity: { sandbox: false }\n"));
    make_dir(dir, "hearth/models");
    free(put(dir, "hearth/models/demo.yaml", "contex: 12\n"));
    token = put(dir, "hearth/token", "0123456789abcdef");
    assert_int_equal(chmod(token, 0644), 0);
    pid_t pid = stranger(&port);
    snprintf(host, sizeof host, "127.0.0.1:%d", port);
    setenv("HEARTH_HOST", host, 1);
    setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
    const json_value *v = examine(1);
    unsetenv("HEARTH_HOST");
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    found(v, "registry", "ok", "intact; 1 model");
    found(v, "registry", "broken", "lost");
    found(v, "blobs", "warning", "no model uses");
    found(v, "blobs", "warning", "download");
    found(v, "config", "broken", "prot");
    found(v, "config", "broken", "contex");
    found(v, "sandbox", "warning", "switched off");
    found(v, "paths", "broken", "token");
    found(v, "paths", "warning", "XDG_RUNTIME_DIR /nonexistent");
    found(v, "server", "warning", "another program answers at http://127.0.0.1:");
    found(v, "demo", "ok", "42");
    str_deinit(&text);
    arena_deinit(&mem);
    free(token);
    free(model);
    test_temp_dir_remove(dir);
}

static void test_damaged_registry(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    serve_isolate(dir);
    arena_init(&mem, 0);
    make_dir(dir, "hearth");
    free(put(dir, "hearth/registry.db", "this is not a database, whatever its name says\n"));
    found(examine(1), "registry", "broken", "registry.db");
    arena_deinit(&mem);
    test_temp_dir_remove(dir);
}

static void test_usage(void **state) {
    char *out;
    (void)state;
    assert_int_equal(program_run("", "doctor --help", &out), 0);
    assert_non_null(strstr(out, "usage: hearth doctor"));
    free(out);
    program_fails("doctor x", 2, "unexpected argument 'x'");
    program_fails("doctor --repair", 2, "--repair");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_damaged_registry),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
