/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls from a server that misbehaves: what arrives is what was promised, or the message says what to do.
 * One file because every case asks the one server that is started here, which takes longer than most of them. */
#include "unit/support/support.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "registry/blobs.h"
#include "registry/db.h"
#include "registry/pull.h"
#include "unit/support/hub.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TINY "hf/acme/tiny-gguf/tiny-Q4_K_M.gguf"

static test_hub hub;

static int setup(void **state) {
    static const char *const parts[] = { "tiny-00001-of-00003.gguf", "tiny-00002-of-00003.gguf",
                                         "tiny-00003-of-00003.gguf" };
    static const char *const folder[] = { "config.json",
                                          "generation_config.json",
                                          "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors",
                                          "model.safetensors.index.json",
                                          "tokenizer.json",
                                          "tokenizer_config.json" };
    char                     to[200], from[200];
    (void)state;
    test_hub_start(&hub);
    test_hub_add(&hub, TINY, "models/demo/draft.gguf");
    test_hub_add(&hub, "hf/acme/tiny-gguf/tiny-Q2_K.gguf", "tests/fixtures/formats/v3.gguf");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(to, sizeof to, "hf/acme/parts/sub/%s", parts[i]);
        snprintf(from, sizeof from, "tests/fixtures/formats/split/%s", parts[i]);
        test_hub_add(&hub, to, from);
    }
    for (size_t i = 0; i < sizeof folder / sizeof *folder; i++) {
        snprintf(to, sizeof to, "hf/acme/dir/%s", folder[i]);
        snprintf(from, sizeof from, "tests/fixtures/formats/hf/%s", folder[i]);
        test_hub_add(&hub, to, from);
    }
    test_hub_write(&hub, "hf/acme/dir/README.md", "not needed");
    test_hub_write(&hub, "hf/acme/dir/chat_template.jinja", "{{ messages }}");
    test_hub_write(&hub, "hf/acme/dir/pytorch_model.bin", "not needed either");
    test_hub_write(
        &hub, "ollama/library/tiny/1b.json",
        "{\"layers\":[[\"model\",\"" TINY "\"],[\"params\",{\"temperature\":0.5,\"stop\":[\"<a>\",\"<b>\"],"
        "\"num_ctx\":512,\"num_thread\":4,\"unheard_of\":1}],[\"system\",\"Be brief.\"],[\"license\",\"MIT\"],"
        "[\"messages\",[{\"role\":\"user\",\"content\":\"hi\"}]],[\"projector\",\"big\"]]}");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_hub_stop(&hub);
    return 0;
}

/* --- one pull --- */

static const pull_patience quick = {
    .piece_bytes = 256 << 10, .tries = 4, .backoff_ms = 3, .stall_ms = 8000, .max_wait_s = 5
};

static pull_request request(const char *name) {
    return (pull_request){ .name = name, .hf_endpoint = hub.url, .ollama_registry = hub.url, .patience = quick };
}

static registry *open_registry(const char *dir) {
    char     *path = path_join(dir, "registry.db");
    registry *r;
    err       e = { 0 };
    if (registry_open(&r, path, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return r;
}

static int pull_into(const char *dir, const pull_request *q, const pull_events *ev, pull_result *out, err *e) {
    registry *r = open_registry(dir);
    *e = (err){ 0 };
    int rc = pull_model(r, q, ev, out, e);
    registry_close(r);
    if (rc < 0) assert_true(e->code == rc && e->msg[0]);
    return rc;
}

static bool is_tiny(const char *path) {
    char *want = path_join(hub.root, TINY);
    bool  same = test_same_bytes(path, want);
    free(want);
    return same;
}

static int64_t tiny_bytes(void) {
    file_map m;
    char    *path = path_join(hub.root, TINY);
    assert_int_equal(file_map_open(&m, path, NULL), 0);
    int64_t n = (int64_t)m.bytes;
    file_map_close(&m);
    free(path);
    return n;
}

/* Pulls the tiny model into a new place and demands that it comes. */
static void comes(const char *faults, pull_request q) {
    char       *dir = test_temp_dir();
    pull_result out;
    err         e;
    test_hub_fault(&hub, faults);
    if (pull_into(dir, &q, NULL, &out, &e) < 0) fail_msg("%s: %s", faults, e.msg);
    if (!is_tiny(out.path)) fail_msg("%s: other bytes", faults);
    assert_int_equal(test_count_like(dir, "*.partial*"), 0);
    assert_int_equal(test_count_like(dir, "*.lock"), 0);
    pull_result_deinit(&out);
    test_temp_dir_remove(dir);
}

/* Demands that it does not come, for this reason; then that it comes from a server that behaves. */
static void fails(const char *faults, pull_request q, int code, const char *why) {
    char       *dir = test_temp_dir();
    pull_result out;
    err         e;
    test_hub_fault(&hub, faults);
    int rc = pull_into(dir, &q, NULL, &out, &e);
    if (rc == 0) fail_msg("%s: it came", faults);
    if (rc != code || !strstr(e.msg, why)) fail_msg("%s: %d %s", faults, rc, e.msg);
    assert_int_equal(test_count_like(dir, "*.lock"), 0);
    if (strcmp(q.name, "acme/tiny-gguf") == 0 && !strstr(faults, "hostile")) {
        test_hub_fault(&hub, "{}");
        pull_request again = request(q.name);
        if (pull_into(dir, &again, NULL, &out, &e) < 0) fail_msg("%s: afterwards: %s", faults, e.msg);
        assert_true(is_tiny(out.path));
        pull_result_deinit(&out);
    }
    test_temp_dir_remove(dir);
}

/* --- what a pull is --- */

static void test_gguf(void **state) {
    char          *dir = test_temp_dir(), *seen;
    pull_request   q = request("hf.co/acme/tiny-gguf");
    pull_result    out;
    registry_model m;
    err            e;
    (void)state;
    q.hf_token = "secret";
    test_hub_fault(&hub, "{\"redirect\":\"host\"}");
    if (pull_into(dir, &q, NULL, &out, &e) < 0) fail_msg("%s", e.msg);
    assert_true(is_tiny(out.path));
    assert_string_equal(out.name, "acme/tiny-gguf");
    assert_int_equal(out.bytes, tiny_bytes());
    assert_int_equal(out.fetched, tiny_bytes());
    assert_int_equal(test_hub_bytes(&hub, TINY), tiny_bytes()); /* no byte twice */
    assert_true(test_hub_number(&hub, "ranges") >= 4);
    seen = test_hub_seen(&hub);
    assert_non_null(strstr(seen, "\"tokens\": [[\"Bearer secret\""));
    assert_non_null(strstr(seen, "], []], \"open\"")); /* the other host never saw it */
    free(seen);
    registry *r = open_registry(dir);
    assert_int_equal(registry_find(r, "acme/tiny-gguf", &m, &e), 0);
    assert_string_equal(m.quant, "Q4_K_M");
    assert_string_equal(m.family, "llama");
    assert_string_equal(m.source, "hf://acme/tiny-gguf/tiny-Q4_K_M.gguf");
    assert_int_equal(strlen(m.sha256), 64);
    registry_model_deinit(&m);
    pull_result_deinit(&out);
    /* Again: nothing is fetched. As another name: neither. Without both: nothing is left. */
    test_hub_fault(&hub, "{}");
    assert_int_equal(pull_into(dir, &q, NULL, &out, &e), 0);
    assert_int_equal(out.fetched, 0);
    pull_result_deinit(&out);
    q.as = "mine";
    assert_int_equal(pull_into(dir, &q, NULL, NULL, &e), 0);
    assert_int_equal(test_hub_bytes(&hub, TINY), 0);
    assert_int_equal(registry_remove(r, "mine", &e), 0);
    assert_int_equal(registry_blob_sweep(r, NULL, &e), 0);
    assert_int_equal(test_count_like(dir, "sha256-*"), 1);
    assert_int_equal(registry_remove(r, "acme/tiny-gguf", &e), 0);
    assert_int_equal(registry_blob_sweep(r, NULL, &e), 0);
    assert_int_equal(test_count_like(dir, "sha256-*"), 0);
    registry_close(r);
    test_temp_dir_remove(dir);
}

static void test_parts(void **state) {
    char          *dir = test_temp_dir();
    pull_request   q = request("acme/parts");
    pull_result    out;
    registry_model m;
    err            e;
    (void)state;
    test_hub_fault(&hub, "{}");
    if (pull_into(dir, &q, NULL, &out, &e) < 0) fail_msg("%s", e.msg);
    char *want = path_join(hub.root, "hf/acme/parts/sub/tiny-00001-of-00003.gguf");
    assert_true(test_same_bytes(out.path, want));
    free(want);
    assert_int_equal(test_count_like(dir, "tiny-0000?-of-00003.gguf"), 3);
    registry *r = open_registry(dir);
    assert_int_equal(registry_find(r, "acme/parts", &m, &e), 0);
    assert_true(m.params > 0);
    registry_model_deinit(&m);
    assert_int_equal(registry_remove(r, "acme/parts", &e), 0);
    assert_int_equal(registry_blob_sweep(r, NULL, &e), 0);
    assert_int_equal(test_count_like(dir, "*tiny*"), 0);
    assert_int_equal(test_count_like(dir, "sha256-*"), 0);
    registry_close(r);
    pull_result_deinit(&out);
    test_temp_dir_remove(dir);
}

static void test_folder(void **state) {
    char        *dir = test_temp_dir(), *path;
    pull_request q = request("acme/dir@v1");
    pull_result  out;
    err          e;
    (void)state;
    test_hub_fault(&hub, "{\"page\":2}");
    if (pull_into(dir, &q, NULL, &out, &e) < 0) fail_msg("%s", e.msg);
    static const char *const files[] = { "config.json", "model-00002-of-00002.safetensors", "tokenizer.json",
                                         "chat_template.jinja", "model.safetensors.index.json" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *got = path_join(out.path, files[i]), name[120];
        snprintf(name, sizeof name, "hf/acme/dir/%s", files[i]);
        path = path_join(hub.root, name);
        assert_true(test_same_bytes(got, path));
        free(got);
        free(path);
    }
    assert_int_equal(test_count_like(out.path, "README.md"), 0);
    assert_int_equal(test_count_like(out.path, "*.bin"), 0);
    pull_result_deinit(&out);
    assert_int_equal(pull_into(dir, &q, NULL, &out, &e), 0);
    assert_int_equal(out.fetched, 0); /* small files without a sha256 included */
    assert_string_equal(out.name, "acme/dir@v1");
    pull_result_deinit(&out);
    test_temp_dir_remove(dir);
}

static void demand_file(const char *path, const char *text) {
    char  *got = NULL;
    size_t n;
    err    e = { 0 };
    if (file_read(&got, &n, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    assert_string_equal(got, text);
    free(got);
}

static void test_ollama(void **state) {
    char             *dir = test_temp_dir(), *settings, *seen;
    pull_request      q = request("tiny:1b");
    pull_result       out;
    arena             a;
    const json_value *v;
    double            t;
    err               e;
    (void)state;
    q.hf_token = "secret";
    test_hub_fault(&hub, "{\"challenge\":true,\"redirect\":\"host\"}");
    if (pull_into(dir, &q, NULL, &out, &e) < 0) fail_msg("%s", e.msg);
    assert_string_equal(out.name, "tiny:1b");
    assert_true(is_tiny(out.path));
    seen = test_hub_seen(&hub);
    assert_null(strstr(seen, "secret")); /* the hub's token is the hub's */
    assert_non_null(strstr(seen, "Bearer anyone"));
    assert_non_null(strstr(seen, "], []], \"open\""));
    free(seen);
    registry *r = open_registry(dir);
    assert_int_equal(registry_tag_get(r, "tiny:1b", "settings", &settings, &e), 0);
    registry_close(r);
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, settings, strlen(settings), &a, NULL), 0);
    assert_true(json_number(json_get(json_get(v, "sampling"), "temperature"), &t) && t == 0.5);
    assert_string_equal(json_cstr(json_at(json_get(json_get(v, "sampling"), "stop"), 1)), "<b>");
    assert_true(json_number(json_get(v, "context"), &t) && t == 512);
    assert_string_equal(json_cstr(json_get(v, "system")), "Be brief.");
    assert_string_equal(json_cstr(json_get(json_at(json_get(v, "messages"), 0), "content")), "hi");
    assert_string_equal(json_cstr(json_get(v, "license")), "MIT");
    demand_file(json_cstr(json_get(v, "mmproj")), "big");
    arena_deinit(&a);
    free(settings);
    pull_result_deinit(&out);
    test_temp_dir_remove(dir);
}

/* A vision tower comes along: beside the model, or named by its settings where it lies elsewhere. */
static void test_towers(void **state) {
    char             *dir = test_temp_dir(), *settings, *beside, *folder;
    pull_request      near_one = request("acme/eyes:Q4_K_M"), far_one = request("acme/eyes:Q8_0");
    pull_result       out;
    arena             a;
    const json_value *v;
    err               e;
    (void)state;
    test_hub_add(&hub, "hf/acme/eyes/m-Q4_K_M.gguf", "models/demo/draft.gguf");
    test_hub_add(&hub, "hf/acme/eyes/Q8_0/m-Q8_0.gguf", "models/demo/draft.gguf");
    test_hub_write(&hub, "hf/acme/eyes/mmproj-m-F32.gguf", "wide");
    test_hub_write(&hub, "hf/acme/eyes/mmproj-m-F16.gguf", "the tower");
    test_hub_fault(&hub, "{}");
    if (pull_into(dir, &near_one, NULL, &out, &e) < 0) fail_msg("%s", e.msg);
    assert_true(is_tiny(out.path));
    folder = strdup(out.path);
    *strrchr(folder, '/') = '\0';
    beside = path_join(folder, "mmproj-m-F16.gguf");
    demand_file(beside, "the tower");
    free(beside);
    beside = path_join(folder, "mmproj-m-F32.gguf");
    assert_false(file_exists(beside));
    pull_result_deinit(&out);
    if (pull_into(dir, &far_one, NULL, &out, &e) < 0) fail_msg("%s", e.msg);
    assert_true(is_tiny(out.path));
    registry *r = open_registry(dir);
    assert_int_equal(registry_tag_get(r, out.name, "settings", &settings, &e), 0);
    registry_close(r);
    arena_init(&a, 0);
    assert_int_equal(json_parse(&v, settings, strlen(settings), &a, NULL), 0);
    demand_file(json_cstr(json_get(v, "mmproj")), "the tower");
    arena_deinit(&a);
    pull_result_deinit(&out);
    free(settings);
    free(beside);
    free(folder);
    test_temp_dir_remove(dir);
}

/* A name of the program's own table that the Ollama registry does not have. */
static void test_known(void **state) {
    char          *dir = test_temp_dir();
    pull_request   q = request("lfm2:1.2b");
    registry_model m;
    err            e;
    (void)state;
    test_hub_add(&hub, "hf/LiquidAI/LFM2-1.2B-GGUF/LFM2-1.2B-Q4_K_M.gguf", "models/demo/draft.gguf");
    test_hub_fault(&hub, "{}");
    if (pull_into(dir, &q, NULL, NULL, &e) < 0) fail_msg("%s", e.msg);
    registry *r = open_registry(dir);
    if (registry_find(r, "lfm2:1.2b", &m, &e) < 0) fail_msg("%s", e.msg);
    assert_string_equal(m.source, "hf://LiquidAI/LFM2-1.2B-GGUF/LFM2-1.2B-Q4_K_M.gguf");
    registry_model_deinit(&m);
    registry_close(r);
    test_temp_dir_remove(dir);
}

/* --- a server that misbehaves --- */

static void test_faults_that_pass(void **state) {
    static const char *const faults[] = {
        "{\"no_ranges\":true}",
        "{\"no_ranges\":true,\"no_length\":true}",
        "{\"no_length\":true}",
        "{\"extra\":100}",
        "{\"wrong_range\":\"start\"}",
        "{\"wrong_range\":\"total\"}",
        "{\"wrong_range\":\"none\"}",
        "{\"cut\":100000}",
        "{\"cut_random\":0.5}",
        "{\"status\":[503,2,{}]}",
        "{\"status\":[500,3,{}]}",
        "{\"status\":[416,2,{}]}",
        "{\"status\":[429,1,{\"Retry-After\":\"0\"}]}",
        "{\"meta_status\":[502,3,{}]}",
        "{\"statuses\":[[503,0.3],[429,0.2]]}",
        "{\"redirect\":\"host\",\"expire\":3}",
        "{\"redirect\":\"host\",\"cut\":200000}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        pull_request q = request("acme/tiny-gguf");
        q.patience.tries = 16; /* some of them are left to chance */
        comes(faults[i], q);
    }
    comes("{\"need_token\":\"abc\"}",
          (pull_request){ .name = "acme/tiny-gguf", .hf_endpoint = hub.url, .hf_token = "abc" });
}

static void test_faults_that_stay(void **state) {
    pull_request q = request("acme/tiny-gguf");
    (void)state;
    q.patience.stall_ms = 250;
    fails("{\"stall\":0}", q, ERR_IO, "almost nothing arrived");
    q.patience.stall_ms = quick.stall_ms;
    fails("{\"flip\":1000000}", q, ERR_FORMAT, "thrown away");
    fails("{\"cut\":0}", q, ERR_IO, "tries");
    fails("{\"no_ranges\":true,\"cut\":1000000}", q, ERR_IO, "is kept");
    fails("{\"status\":[503,-1,{}]}", q, ERR_IO, "503");
    fails("{\"status\":[429,-1,{\"Retry-After\":\"4000\"}]}", q, ERR_BUSY, "4000 s");
    fails("{\"meta_status\":[429,-1,{\"Retry-After\":\"4000\"}]}", q, ERR_BUSY, "4000 s");
    fails("{\"redirect\":\"loop\"}", q, ERR_FORMAT, "redirects");
    fails("{\"redirect\":\"plain\"}", q, ERR_FORMAT, "not a web address");
    fails("{\"redirect\":\"host\",\"linked\":\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}", q,
          ERR_FORMAT, "do not belong together");
    fails("{\"gone\":true}", q, ERR_NOTFOUND, "tiny-Q4_K_M.gguf does not exist at 127.0.0.1");
    fails("{\"need_token\":\"abc\"}", q, ERR_ARG, "HF_TOKEN");
    q.hf_token = "wrong";
    fails("{\"need_token\":\"abc\"}", q, ERR_ARG, "licence");
    q.hf_token = NULL;
    fails("{\"garbage\":\"<html>\"}", q, ERR_FORMAT, "hub");
    fails("{\"garbage\":\"{}\"}", q, ERR_FORMAT, "commit");
    fails("{\"huge\":1000000000000000000}", q, ERR_IO, "1000000000000000000 bytes");
    static const char *const names[] = { "../x", "a/../../x", "/etc/x",     "a\\\\..\\\\x", "a//x",  "x/",
                                         "..",   "./x",       "a/\\u0000x", "a\\nb",        "a/./x", "" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char faults[100];
        snprintf(faults, sizeof faults, "{\"hostile\":\"%s\"}", names[i]);
        fails(faults, q, ERR_FORMAT, "could lead out");
    }
    fails("{}", request("acme/nothing"), ERR_NOTFOUND, "acme/nothing");
    fails("{}", request("acme/tiny-gguf:Q8_0"), ERR_NOTFOUND, "Q4_K_M (2.7 MB)");
    fails("{}", request("acme/tiny-gguf@nope"), ERR_NOTFOUND, "nope");
    fails("{}", request("nothing:1b"), ERR_NOTFOUND, "nothing:1b");
    fails("{\"garbage\":\"{}\"}", request("tiny:1b"), ERR_FORMAT, "no layers");
    fails("{\"garbage\":\"[[[[\"}", request("tiny:1b"), ERR_FORMAT, "tiny:1b");
    fails("{}", request("demo"), ERR_ARG, "nothing to pull");
    fails("{}", request("./x.gguf"), ERR_ARG, "path");
    q.hf_endpoint = hub.tls_url;
    fails("{}", q, ERR_IO, "certificate"); /* no one signed it */
    q.hf_endpoint = "http://127.0.0.1:1";
    fails("{}", q, ERR_IO, "127.0.0.1");
    q.hf_endpoint = "ftp//x";
    fails("{}", q, ERR_ARG, "ftp//x");
}

/* A certificate that is trusted: the same over TLS. */
static void test_tls(void **state) {
    pull_request q = request("acme/tiny-gguf");
    char        *cert = test_fixture_path("tls/cert.pem");
    char         url[80];
    (void)state;
    snprintf(url, sizeof url, "https://localhost%s", strrchr(hub.tls_url, ':'));
    q.hf_endpoint = url;
    q.ca_file = cert;
    comes("{}", q);
    free(cert);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void test_retry_after(void **state) {
    double begin = seconds();
    (void)state;
    comes("{\"status\":[429,1,{\"Retry-After\":\"1\"}]}", request("acme/tiny-gguf"));
    assert_true(seconds() - begin >= 1);
}

/* --- broken off --- */

/* After a cut the next pull fetches what is missing, and no more than a piece of what is there. */
static void test_resumed(void **state) {
    char        *dir = test_temp_dir();
    pull_request q = request("acme/tiny-gguf");
    pull_result  out;
    err          e;
    (void)state;
    q.patience.tries = 1;
    test_hub_fault(&hub, "{\"cut\":100000}");
    assert_int_equal(pull_into(dir, &q, NULL, &out, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "is kept"));
    int64_t first = test_hub_bytes(&hub, TINY);
    assert_true(first >= 100000);
    test_hub_fault(&hub, "{}");
    assert_int_equal(pull_into(dir, &q, NULL, &out, &e), 0);
    assert_true(is_tiny(out.path));
    assert_int_equal(out.fetched, test_hub_bytes(&hub, TINY));
    assert_true(first + out.fetched <= tiny_bytes() + (4 << 16)); /* what was under way in the connections */
    pull_result_deinit(&out);
    test_temp_dir_remove(dir);
}

/* The file changed at the server: bytes of both are not mixed. */
static void test_changed(void **state) {
    char        *dir = test_temp_dir();
    pull_request q = request("acme/tiny-gguf");
    pull_result  out;
    err          e;
    (void)state;
    q.patience.tries = 1;
    test_hub_fault(&hub, "{\"cut\":100000,\"flip\":1000,\"etag\":\"one\"}");
    assert_int_equal(pull_into(dir, &q, NULL, &out, &e), ERR_IO);
    test_hub_fault(&hub, "{\"etag\":\"two\"}");
    if (pull_into(dir, &q, NULL, &out, &e) < 0) fail_msg("%s", e.msg);
    assert_true(is_tiny(out.path));
    assert_int_equal(out.fetched, tiny_bytes());
    pull_result_deinit(&out);
    test_temp_dir_remove(dir);
}

/* A note that does not make sense is not a reason for anything but to begin anew. */
static void test_bad_notes(void **state) {
    static const char *const notes[] = { "", "{}", "[", "{\"version\":1,\"digest\":\"x\",\"size\":1,\"piece\":0}" };
    (void)state;
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        char         command[600], *dir = test_temp_dir();
        pull_request q = request("acme/tiny-gguf");
        pull_result  out;
        err          e;
        q.patience.tries = 1;
        test_hub_fault(&hub, "{\"cut\":100000}");
        assert_int_equal(pull_into(dir, &q, NULL, &out, &e), ERR_IO);
        snprintf(command, sizeof command, "printf '%%s' '%s' > '%s'/blobs/*.json", notes[i], dir);
        assert_int_equal(system(command), 0);
        test_hub_fault(&hub, "{}");
        assert_int_equal(pull_into(dir, &q, NULL, &out, &e), 0);
        assert_true(is_tiny(out.path));
        pull_result_deinit(&out);
        test_temp_dir_remove(dir);
    }
}

static bool stop_at_half(void *ctx, const pull_progress *p) {
    int64_t *seen = ctx;
    *seen = p->completed;
    return p->total == 0 || p->completed < p->total / 2;
}

static void test_stopped(void **state) {
    char        *dir = test_temp_dir();
    int64_t      seen = 0;
    pull_events  ev = { .ctx = &seen, .progress = stop_at_half };
    atomic_bool  cancel = true;
    pull_request q = request("acme/tiny-gguf");
    pull_result  out;
    err          e;
    (void)state;
    test_hub_fault(&hub, "{\"delay\":0.02}");
    assert_int_equal(pull_into(dir, &q, &ev, &out, &e), ERR_CANCELLED);
    assert_non_null(strstr(e.msg, "is kept"));
    assert_true(seen >= tiny_bytes() / 2 && seen < tiny_bytes());
    assert_int_equal(pull_into(dir, &q, &(pull_events){ .cancel = &cancel }, &out, &e), ERR_CANCELLED);
    test_hub_fault(&hub, "{}");
    assert_int_equal(pull_into(dir, &q, NULL, &out, &e), 0);
    assert_true(is_tiny(out.path));
    assert_true(out.fetched <= tiny_bytes() - seen);
    pull_result_deinit(&out);
    test_temp_dir_remove(dir);
}

/* --- several processes --- */

typedef struct child_watch {
    bool elsewhere;
    int  out; /* where each step is said: bytes of the file under way; -1: nowhere */
} child_watch;

static bool on_child_progress(void *ctx, const pull_progress *p) {
    child_watch *w = ctx;
    if (strstr(p->status, "by another process") && p->completed > 0) w->elsewhere = true;
    return w->out < 0 || p->total == 0 || write(w->out, &p->completed, sizeof p->completed) > 0;
}

/* Ends with 0 if it came, 3 if it came and another process was seen at work, 1 if it did not. */
static pid_t pull_in_child(const char *dir, const pull_request *q, int out) {
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        registry   *r;
        char       *path = path_join(dir, "registry.db");
        child_watch w = { .out = out };
        pull_events ev = { .ctx = &w, .progress = on_child_progress };
        err         e = { 0 };
        int         rc = registry_open(&r, path, &e);
        if (rc == 0) rc = pull_model(r, q, &ev, NULL, &e);
        if (rc < 0) fprintf(stderr, "child: %s\n", e.msg);
        _exit(rc < 0 ? 1 : w.elsewhere ? 3 : 0);
    }
    return child;
}

static void test_two_at_once(void **state) {
    char        *dir = test_temp_dir();
    pull_request q = request("acme/tiny-gguf"), other = request("tiny:1b");
    pull_result  out;
    int          status, waited = 0;
    pid_t        child[3];
    err          e;
    (void)state;
    test_hub_fault(&hub, "{\"delay\":0.02}");
    child[0] = pull_in_child(dir, &q, -1);
    child[1] = pull_in_child(dir, &q, -1);
    child[2] = pull_in_child(dir, &other, -1); /* the same blob by another name */
    for (int i = 0; i < 3; i++) {
        waitpid(child[i], &status, 0);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3));
        waited += WEXITSTATUS(status) == 3;
    }
    assert_int_equal(waited, 2);
    assert_int_equal(test_hub_bytes(&hub, TINY), tiny_bytes());
    assert_int_equal(pull_into(dir, &q, NULL, &out, &e), 0);
    assert_int_equal(out.fetched, 0);
    assert_true(is_tiny(out.path));
    pull_result_deinit(&out);
    test_temp_dir_remove(dir);
}

/* A process that removes the model and frees its files, all the time. */
static pid_t remove_in_child(const char *dir) {
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        registry *r;
        char     *path = path_join(dir, "registry.db");
        if (registry_open(&r, path, NULL) < 0) _exit(1);
        for (;;) {
            registry_remove(r, "acme/tiny-gguf", NULL);
            registry_remove(r, "acme/parts", NULL);
            if (registry_blob_sweep(r, NULL, NULL) < 0) _exit(2);
        }
    }
    return child;
}

/* While files come and go, every model that is in the registry has its own: nothing is freed before it is entered. */
static void test_removed_meanwhile(void **state) {
    char          *dir = test_temp_dir();
    registry      *r = open_registry(dir);
    registry_model m;
    int            status, there = 0, rounds = getenv("HEARTH_LONG") ? 100 : 10;
    (void)state;
    test_hub_fault(&hub, "{}");
    pid_t child = remove_in_child(dir);
    for (int i = 0; i < rounds; i++) {
        pull_request q = request(i % 2 ? "acme/parts" : "acme/tiny-gguf");
        err          e;
        if (pull_into(dir, &q, NULL, NULL, &e) < 0) fail_msg("%s", e.msg);
        assert_int_equal(registry_db_begin(r, &e), 0); /* nothing is removed while this lasts */
        if (registry_find(r, q.name, &m, &e) == 0) {
            there++;
            if (!file_exists(m.path)) fail_msg("%s is gone", m.path);
            registry_model_deinit(&m);
        }
        assert_int_equal(registry_db_end(r, 0, &e), 0);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    printf("%d pulls against a process that removes; %d models were still there after theirs\n", rounds, there);
    registry_close(r);
    test_temp_dir_remove(dir);
}

/*
 * Kills a pull: at a random moment, or when a random amount has come; true if it was still at work. Bytes that it says
 * it has are on their way into the note.
 */
static bool kill_one(const char *dir, const pull_request *q, uint64_t *seed, bool wait_for_bytes) {
    int     pipes[2], status;
    int64_t first = -1, at = 0, more = (int64_t)(test_random(seed) % 100000);
    assert_int_equal(pipe(pipes), 0);
    pid_t child = pull_in_child(dir, q, pipes[1]);
    close(pipes[1]);
    if (wait_for_bytes) {
        while (read(pipes[0], &at, sizeof at) == sizeof at && (first < 0 || at <= first + more)) {
            if (first < 0) first = at;
        }
    } else {
        nanosleep(&(struct timespec){ 0, (long)(test_random(seed) % 200) * 1000000L }, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(pipes[0]);
    return WIFSIGNALED(status);
}

/* Killed again and again: the file is right in the end, and what came before was used. */
static void test_killed(void **state) {
    bool         longer = getenv("HEARTH_LONG") != NULL;
    const char  *file = longer ? "hf/acme/big/big-Q8_0.gguf" : TINY;
    int          rounds = longer ? 50 : 6, killed = 0;
    char        *dir = test_temp_dir(), *want;
    pull_request q = request(longer ? "acme/big" : "acme/tiny-gguf");
    pull_result  out;
    uint64_t     seed = 11;
    err          e;
    (void)state;
    q.patience.piece_bytes = 64 << 10;
    if (longer) test_hub_add(&hub, file, "models/demo/demo.gguf");
    test_hub_fault(&hub, longer ? "{\"delay\":0.04}" : "{\"delay\":0.05}");
    for (int i = 0; i < 2 * rounds && killed < rounds; i++) killed += kill_one(dir, &q, &seed, i % 2 == 0);
    int64_t before = test_hub_bytes(&hub, file);
    test_hub_fault(&hub, "{}");
    if (pull_into(dir, &q, NULL, &out, &e) < 0) fail_msg("%s", e.msg);
    want = path_join(hub.root, file);
    assert_true(test_same_bytes(out.path, want));
    printf("%d pulls killed; %lld bytes sent to them, %lld of %lld to the one that finished\n", killed,
           (long long)before, (long long)out.fetched, (long long)out.bytes);
    assert_true(killed >= rounds / 2); /* the others were complete before */
    assert_true(out.fetched < out.bytes);
    pull_result_deinit(&out);
    assert_int_equal(test_count_like(dir, "*.partial*"), 0);
    free(want);
    test_temp_dir_remove(dir);
}

/* --- by chance --- */

static void put_random_fault(str *s, uint64_t *seed) {
    static const char *const faults[] = {
        "\"cut\":%d",
        "\"cut_random\":0.%02d",
        "\"no_ranges\":true",
        "\"wrong_range\":\"start\"",
        "\"wrong_range\":\"total\"",
        "\"no_length\":true",
        "\"extra\":%d",
        "\"flip\":%d",
        "\"status\":[503,2,{}]",
        "\"status\":[500,-1,{}]",
        "\"status\":[429,2,{\"Retry-After\":\"0\"}]",
        "\"status\":[403,1,{}]",
        "\"meta_status\":[502,3,{}]",
        "\"statuses\":[[503,0.3],[429,0.2],[404,0.02]]",
        "\"stall\":%d",
        "\"redirect\":\"host\"",
        "\"redirect\":\"host\",\"expire\":2",
        "\"delay\":0.002",
        "\"etag\":\"e%d\"",
        "\"page\":3",
        "\"challenge\":true",
    };
    int n = 1 + (int)(test_random(seed) % 3);
    str_puts(s, "{");
    for (int i = 0; i < n; i++) {
        if (i) str_puts(s, ",");
        const char *f = faults[test_random(seed) % (sizeof faults / sizeof *faults)];
        int         size = (int)(test_random(seed) % 3000000);
        if (strstr(f, "%02d")) size = 10 + size % 80;
        const char *mark = strchr(f, '%');
        if (mark)
            str_printf(s, "%.*s%d%s", (int)(mark - f), f, size, strchr(mark, 'd') + 1);
        else
            str_puts(s, f);
    }
    str_puts(s, "}");
}

/* What the user reads says whether something is kept, or why nothing came. */
static bool is_clear(const char *text) {
    static const char *const parts[] = { "is kept",    "thrown away",       "tries:",      "try again later",
                                         "refuses it", "does not exist at", "larger than", "the listing says" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(text, parts[i])) return true;
    }
    return false;
}

/* Each ends complete and verified, or with a sentence; and from there a server that behaves finishes it. */
static void test_random_faults(void **state) {
    static const char *const names[] = { "acme/tiny-gguf", "acme/tiny-gguf", "tiny:1b", "acme/dir", "acme/parts" };
    int                      rounds = getenv("HEARTH_LONG") ? 200 : 12, complete = 0, kept = 0, other = 0;
    uint64_t                 seed = getenv("HEARTH_SEED") ? strtoull(getenv("HEARTH_SEED"), NULL, 10) : 5;
    char                    *dir = test_temp_dir();
    (void)state;
    for (int i = 0; i < rounds; i++) {
        pull_request q = request(names[test_random(&seed) % 5]);
        pull_result  out;
        str          faults;
        err          e;
        q.patience.stall_ms = 150;
        q.patience.backoff_ms = 2;
        q.patience.tries = 3;
        q.patience.ranges = 1 + (int)(test_random(&seed) % 6);
        q.patience.piece_bytes = 1 << (12 + test_random(&seed) % 12);
        str_init(&faults);
        put_random_fault(&faults, &seed);
        test_hub_fault(&hub, str_cstr(&faults));
        int rc = pull_into(dir, &q, NULL, &out, &e);
        if (rc == 0) {
            complete++;
        } else {
            bool says = strstr(e.msg, "is kept") != NULL;
            if (!is_clear(e.msg)) fail_msg("%s: %s", str_cstr(&faults), e.msg);
            kept += says;
            other += !says;
            if (getenv("HEARTH_LONG")) printf("%s: %s\n", str_cstr(&faults), e.msg);
            test_hub_fault(&hub, "{}");
            q.patience.stall_ms = quick.stall_ms;
            if (pull_into(dir, &q, NULL, &out, &e) < 0) fail_msg("after %s: %s", str_cstr(&faults), e.msg);
        }
        bool tiny = strstr(q.name, "tiny") != NULL;
        if (tiny && !is_tiny(out.path)) fail_msg("%s: other bytes", str_cstr(&faults));
        if (!tiny) {
            bool  parts = strstr(q.name, "parts") != NULL;
            char *got = parts ? strdup(out.path) : path_join(out.path, "model-00001-of-00002.safetensors");
            char *want = path_join(hub.root, parts ? "hf/acme/parts/sub/tiny-00001-of-00003.gguf"
                                                   : "hf/acme/dir/model-00001-of-00002.safetensors");
            if (!test_same_bytes(got, want)) fail_msg("%s: other bytes", str_cstr(&faults));
            free(got);
            free(want);
        }
        assert_int_equal(test_count_like(dir, "*.partial*"), 0);
        /* The next one starts from nothing, as often as not. */
        registry *r = open_registry(dir);
        assert_int_equal(registry_remove(r, out.name, &e), 0);
        assert_int_equal(registry_blob_sweep(r, NULL, &e), 0);
        assert_int_equal(test_count_like(dir, "sha256-*"), 0);
        registry_close(r);
        pull_result_deinit(&out);
        str_deinit(&faults);
    }
    printf("%d pulls: %d complete at once, %d resumable, %d refused with a reason; all complete in the end\n", rounds,
           complete, kept, other);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_ollama),
        cmocka_unit_test(test_towers),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_faults_that_pass),
        cmocka_unit_test(test_faults_that_stay),
        cmocka_unit_test(test_tls),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_bad_notes),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_removed_meanwhile),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_random_faults),
    };
    test_filter();
    test_avoid_the_disk();
    return cmocka_run_group_tests(tests, setup, teardown);
}
