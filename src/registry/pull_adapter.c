/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/pull_adapter.h"

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "registry/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MOST = 1 << 20 };

static size_t place_of(const hub_listing *l, const char *path) {
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->files[i].path, path) == 0) return i;
    }
    return SIZE_MAX;
}

bool pull_adapter_find(const hub_listing *l, size_t *config, size_t *weights, err *e) {
    *config = place_of(l, "adapter_config.json");
    *weights = place_of(l, "adapter_model.safetensors");
    if (*weights == SIZE_MAX) *weights = place_of(l, "adapters.safetensors");
    if (*config == SIZE_MAX || place_of(l, "config.json") != SIZE_MAX) return false;
    if (*weights == SIZE_MAX && place_of(l, "adapter_model.bin") != SIZE_MAX)
        err_set(
            e, ERR_UNSUPPORTED,
            "its weights are in adapter_model.bin, a program in disguise; an adapter needs adapter_model.safetensors");
    return *weights != SIZE_MAX;
}

/* --- what the config says --- */

static const char *text_of(const json_value *v, const char *key) {
    const char *text = json_cstr(json_get(v, key));
    return text && *text ? text : NULL;
}

static const char *kind_of(const json_value *v) {
    const char *type = text_of(v, "peft_type");
    if (type && strcmp(type, "IA3") == 0) return "ia3";
    if (json_bool(json_get(v, "use_dora"), false)) return "dora";
    if (json_is(json_get(v, "alora_invocation_tokens"), JSON_K_ARRAY)) return "alora";
    return json_bool(json_get(v, "use_rslora"), false) ? "rslora" : "lora";
}

static int describe(const json_value *v, bool mlx, registry_adapter *a, err *e) {
    const json_value *numbers = mlx ? json_get(v, "lora_parameters") : v;
    double            rank = 0;
    json_number(json_get(numbers, mlx ? "rank" : "r"), &rank);
    if (!mlx) json_number(json_get(v, "lora_alpha"), &a->alpha);
    a->rank = rank > 0 && rank < 1e6 ? (int64_t)rank : 0;
    a->scale = 1;
    a->type = strdup(kind_of(v));
    a->format = strdup(mlx ? "MLX" : "PEFT");
    return a->type && a->format ? 0 : err_set_nomem(e);
}

/* The model that it is for. */
static int find_base(registry *r, const pull_adapter *a, const json_value *v, registry_model *out, err *e) {
    const char *said = text_of(v, "base_model_name_or_path");
    if (!said) said = text_of(v, "model"); /* MLX */
    const char *base = a->base ? a->base : said;
    if (!base)
        return err_set(e, ERR_ARG, "it does not say which model it is for; name one of 'hearth list' with --base");
    int rc = names_find(r, base, NULL, out, e);
    if (rc == 0 || a->base) return rc;
    return err_set(e, rc,
                   "it is an adapter of %.150s, which is not here; pull that first, or name another copy of it with "
                   "--base",
                   base);
}

/* --- its content --- */

/* The identity that reading it gives, too (nn/adapter.h). */
static int content_of(const pull_adapter *a, const char *config, size_t bytes, char out[2 * SHA256_BYTES + 1], err *e) {
    file_map data = { 0 };
    sha256   h;
    uint8_t  sum[SHA256_BYTES];
    int      rc = file_map_open(&data, a->weights, e);
    if (rc < 0) return rc;
    uint64_t sizes[2] = { bytes, data.bytes };
    sha256_init(&h);
    sha256_feed(&h, sizes, sizeof sizes);
    sha256_feed(&h, config, bytes);
    sha256_feed(&h, data.data, data.bytes);
    sha256_finish(&h, sum);
    file_map_close(&data);
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
    return 0;
}

static int keep(registry *r, const pull_adapter *a, const registry_model *base, registry_adapter *row, char **model,
                err *e) {
    const char *names[] = { "adapter_config.json", a->weights_name }, *paths[] = { a->config, a->weights };
    str         s;
    int         rc = registry_adapter_keep(r, names, paths, 2, row->sha256, &row->path, &row->size, e);
    if (rc == 0) rc = registry_adapter_add(r, base->name, row, true, e);
    err swept = { 0 };
    (void)registry_adapter_sweep(r, &swept);
    if (rc < 0) return rc;
    str_init(&s);
    str_printf(&s, "%s+%s", base->name, row->name);
    *model = str_take(&s);
    return *model ? 0 : err_set_nomem(e);
}

int pull_adapter_enter(registry *r, const pull_adapter *a, char **model, char **path, err *e) {
    const json_value *v = NULL;
    registry_adapter  row = { 0 };
    registry_model    base = { 0 };
    arena             mem;
    char             *text = NULL, sum[2 * SHA256_BYTES + 1];
    size_t            bytes = 0;
    bool              mlx = strcmp(a->weights_name, "adapters.safetensors") == 0;
    arena_init(&mem, 0);
    *model = *path = NULL;
    int rc = file_read(&text, &bytes, a->config, CONFIG_MOST, e);
    if (rc == 0 && (rc = json_parse(&v, text, bytes, &mem, e)) < 0) err_wrap(e, rc, "adapter_config.json");
    if (rc == 0) rc = find_base(r, a, v, &base, e);
    if (rc == 0) rc = describe(v, mlx, &row, e);
    if (rc == 0) rc = content_of(a, text, bytes, sum, e);
    if (rc == 0 && (!(row.sha256 = strdup(sum)) || !(row.name = strdup(a->name)))) rc = err_set_nomem(e);
    if (rc == 0) rc = keep(r, a, &base, &row, model, e);
    if (rc == 0) {
        *path = row.path;
        row.path = NULL;
    }
    registry_adapter_deinit(&row);
    registry_model_deinit(&base);
    arena_deinit(&mem);
    free(text);
    return rc;
}
