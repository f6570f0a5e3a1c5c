/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/hub.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "unit/support/model.h"
#include "unit/support/support.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

void test_hub_start(test_hub *h) {
    int  in[2], out[2], ports[3];
    char line[128];
    unsetenv("http_proxy");
    unsetenv("https_proxy");
    unsetenv("all_proxy");
    unsetenv("HTTPS_PROXY");
    unsetenv("ALL_PROXY");
    h->root = test_temp_dir();
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    h->pid = fork();
    assert_true(h->pid >= 0);
    if (h->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++) close(fd);
        execlp("python3", "python3", HEARTH_SOURCE_DIR "/tests/registry/server.py", h->root, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    h->in = in[1];
    FILE *f = fdopen(out[0], "r");
    assert_non_null(f);
    if (!fgets(line, sizeof line, f) || sscanf(line, "ready %d %d %d", &ports[0], &ports[1], &ports[2]) != 3) {
        printf("skipped: the test server does not start (is there a python3?)\n");
        fclose(f);
        skip();
    }
    fclose(f);
    snprintf(h->url, sizeof h->url, "http://127.0.0.1:%d", ports[0]);
    snprintf(h->other_url, sizeof h->other_url, "http://127.0.0.1:%d", ports[1]);
    snprintf(h->tls_url, sizeof h->tls_url, "https://127.0.0.1:%d", ports[2]);
}

void test_hub_stop(test_hub *h) {
    close(h->in);
    waitpid(h->pid, NULL, 0);
    test_temp_dir_remove(h->root);
}

static void make_folder_of(const char *path) {
    char command[1200];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", path);
    assert_int_equal(system(command), 0);
}

void test_hub_write(const test_hub *h, const char *path, const char *text) {
    char *full = path_join(h->root, path);
    make_folder_of(full);
    test_write_file(full, text, strlen(text));
    free(full);
}

void test_hub_add(const test_hub *h, const char *path, const char *source) {
    char *full = path_join(h->root, path),
         *from = source[0] == '/' ? strdup(source) : path_join(HEARTH_SOURCE_DIR, source);
    char command[2400];
    make_folder_of(full);
    snprintf(command, sizeof command, "cp '%s' '%s'", from, full);
    assert_int_equal(system(command), 0);
    free(from);
    free(full);
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    str_append(ctx, data, size * n);
    return size * n;
}

static char *control(const test_hub *h, const char *post) {
    str   body, url;
    CURL *c = curl_easy_init();
    str_init(&body);
    str_init(&url);
    str_printf(&url, "%s/_control", h->url);
    curl_easy_setopt(c, CURLOPT_URL, str_cstr(&url));
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &body);
    if (post) curl_easy_setopt(c, CURLOPT_POSTFIELDS, post);
    assert_int_equal(curl_easy_perform(c), CURLE_OK);
    curl_easy_cleanup(c);
    str_deinit(&url);
    str_puts(&body, "");
    return str_take(&body);
}

void test_hub_fault(const test_hub *h, const char *json) { free(control(h, json)); }

char *test_hub_seen(const test_hub *h) { return control(h, NULL); }

static int64_t number_at(const test_hub *h, const char *group, const char *key) {
    char             *text = test_hub_seen(h);
    arena             a;
    const json_value *v;
    int64_t           n = 0;
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, text, strlen(text), &a, NULL), 0);
    json_int(json_get(group ? json_get(v, group) : v, key), &n);
    arena_deinit(&a);
    free(text);
    return n;
}

int64_t test_hub_number(const test_hub *h, const char *key) { return number_at(h, NULL, key); }

int64_t test_hub_bytes(const test_hub *h, const char *path) { return number_at(h, "bytes", path); }

bool test_same_bytes(const char *a, const char *b) {
    file_map x, y;
    if (file_map_open(&x, a, NULL) < 0) return false;
    if (file_map_open(&y, b, NULL) < 0) fail_msg("no %s", b);
    bool same = x.bytes == y.bytes && memcmp(x.data, y.data, x.bytes) == 0;
    file_map_close(&x);
    file_map_close(&y);
    return same;
}

int test_count_like(const char *dir, const char *pattern) {
    char command[600];
    int  n = 0;
    snprintf(command, sizeof command, "find '%s' -name '%s' | wc -l", dir, pattern);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

void test_avoid_the_disk(void) {
    struct statvfs v;
    if (statvfs("/dev/shm", &v) == 0 && v.f_bavail * v.f_frsize > 100 << 20 && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
}
