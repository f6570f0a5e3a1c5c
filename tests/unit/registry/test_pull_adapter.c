/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls of repositories with an adapter: it becomes one of the model that it was trained on, or of one that is named. */
#include "unit/support/support.h"

#include "base/file.h"
#include "registry/adapters.h"
#include "registry/pull.h"
#include "unit/support/hub.h"

#include <stdlib.h>
#include <string.h>

#define WEIGHTS "tests/golden/adapters/llama_lora/adapter_model.safetensors"

static test_hub hub;

static int setup(void **state) {
    (void)state;
    test_hub_start(&hub);
    test_hub_add(&hub, "hf/acme/tiny-gguf/tiny-Q4_K_M.gguf", "models/demo/draft.gguf");
    test_hub_add(&hub, "hf/acme/french-lora/adapter_model.safetensors", WEIGHTS);
    test_hub_write(&hub, "hf/acme/french-lora/README.md", "not needed");
    test_hub_write(&hub, "hf/acme/french-lora/adapter_config.json",
                   "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"use_rslora\":true,"
                   "\"base_model_name_or_path\":\"acme/tiny-gguf\"}");
    test_hub_add(&hub, "hf/acme/mlx/adapters.safetensors", WEIGHTS);
    test_hub_write(&hub, "hf/acme/mlx/adapter_config.json",
                   "{\"fine_tune_type\":\"lora\",\"model\":\"acme/elsewhere\","
                   "\"lora_parameters\":{\"rank\":4,\"scale\":2.0}}");
    test_hub_write(&hub, "hf/acme/pickle/adapter_config.json", "{}");
    test_hub_write(&hub, "hf/acme/pickle/adapter_model.bin", "not to be opened");
    test_hub_add(&hub, "hf/acme/odd/adapter_model.safetensors", WEIGHTS);
    test_hub_write(&hub, "hf/acme/odd/adapter_config.json", "{\"r\":");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_hub_stop(&hub);
    return 0;
}

static registry *open_registry(const char *dir) {
    char     *path = path_join(dir, "registry.db");
    registry *r;
    err       e = { 0 };
    if (registry_open(&r, path, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return r;
}

static int pull(registry *r, const char *name, const char *as, const char *base, pull_result *out, err *e) {
    pull_request q = { .name = name,
                       .as = as,
                       .base = base,
                       .hf_endpoint = hub.url,
                       .ollama_registry = hub.url,
                       .patience = { .tries = 2, .backoff_ms = 3, .stall_ms = 8000 } };
    *e = (err){ 0 };
    return pull_model(r, &q, NULL, out, e);
}

static void comes(registry *r, const char *name, const char *as, const char *base, const char *want) {
    pull_result out;
    err         e;
    if (pull(r, name, as, base, &out, &e) < 0) fail_msg("%s: %s", name, e.msg);
    assert_string_equal(out.name, want);
    pull_result_deinit(&out);
}

static void fails(registry *r, const char *name, const char *base, const char *why) {
    pull_result out;
    err         e;
    assert_true(pull(r, name, NULL, base, &out, &e) < 0);
    if (!strstr(e.msg, why)) fail_msg("%s: %s", name, e.msg);
}

static void is_kept(registry *r, const char *name, const char *type, const char *format, const char *weights) {
    registry_adapter a;
    char            *path = NULL, *source = NULL;
    err              e = { 0 };
    if (registry_adapter_find(r, "acme/tiny-gguf", name, &a, &e) < 0) fail_msg("%s", e.msg);
    assert_string_equal(a.type, type);
    assert_string_equal(a.format, format);
    assert_int_equal(a.rank, 4);
    assert_true((path = path_join(a.path, weights)) && (source = path_join(HEARTH_SOURCE_DIR, WEIGHTS)));
    assert_true(test_same_bytes(path, source));
    free(path);
    free(source);
    registry_adapter_deinit(&a);
}

static void test_adapters(void **state) {
    char             *dir = test_temp_dir();
    registry         *r = open_registry(dir);
    registry_adapter *list;
    size_t            n;
    err               e = { 0 };
    (void)state;
    fails(r, "acme/french-lora", NULL, "it is an adapter of acme/tiny-gguf, which is not here");
    comes(r, "acme/tiny-gguf", NULL, NULL, "acme/tiny-gguf");
    fails(r, "acme/tiny-gguf", "acme/tiny-gguf", "is not an adapter");
    comes(r, "acme/french-lora", NULL, NULL, "acme/tiny-gguf+french-lora");
    is_kept(r, "french-lora", "rslora", "PEFT", "adapter_model.safetensors");
    fails(r, "acme/mlx", NULL, "it is an adapter of acme/elsewhere, which is not here");
    comes(r, "acme/mlx", "other", "acme/tiny-gguf", "acme/tiny-gguf+other");
    is_kept(r, "other", "lora", "MLX", "adapters.safetensors");
    fails(r, "acme/pickle", NULL, "adapter_model.bin");
    fails(r, "acme/odd", NULL, "adapter_config.json");
    fails(r, "acme/mlx", "nobody", "nobody");
    /* Again, with other content: the name has the new one, and the old is gone. */
    test_hub_write(&hub, "hf/acme/french-lora/adapter_config.json",
                   "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":16,"
                   "\"base_model_name_or_path\":\"acme/tiny-gguf\"}");
    comes(r, "acme/french-lora", NULL, NULL, "acme/tiny-gguf+french-lora");
    is_kept(r, "french-lora", "lora", "PEFT", "adapter_model.safetensors");
    assert_int_equal(registry_adapter_list(r, "acme/tiny-gguf", &list, NULL, &n, &e), 0);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) registry_adapter_deinit(&list[i]);
    free(list);
    assert_int_equal(test_count_like(dir, "adapter_config.json"), 2);
    registry_close(r);
    test_temp_dir_remove(dir);
}

/* What does not arrive whole is not used. */
static void test_damaged(void **state) {
    char     *dir = test_temp_dir();
    registry *r = open_registry(dir);
    (void)state;
    comes(r, "acme/tiny-gguf", NULL, NULL, "acme/tiny-gguf");
    test_hub_fault(&hub, "{\"flip\": 2000}");
    fails(r, "acme/french-lora", NULL, "sha256");
    test_hub_fault(&hub, "{}");
    assert_int_equal(test_count_like(dir, "adapter_config.json"), 0);
    comes(r, "acme/french-lora", NULL, NULL, "acme/tiny-gguf+french-lora");
    registry_close(r);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_adapters), cmocka_unit_test(test_damaged) };
    test_avoid_the_disk();
    return cmocka_run_group_tests(tests, setup, teardown);
}
