/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models/calibration.h"

#include "base/file.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/sha256.h"
#include "kernels/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model that is so many times larger or smaller says nothing: it lies in another level of memory. */
#define MAX_RATIO 16.0

enum { MAX_FILE = 8 << 20, MAX_ENTRIES = 10000 };

void calibration_model_key(char out[65], const model_file *f) {
    sha256  s;
    uint8_t sum[SHA256_BYTES];
    sha256_init(&s);
    for (size_t i = 0; i < model_file_tensor_count(f); i++) {
        const model_tensor *t = model_file_tensor_at(f, i);
        sha256_feed(&s, t->name, strlen(t->name) + 1);
        sha256_feed(&s, &t->type, sizeof t->type);
        sha256_feed(&s, t->dims, sizeof t->dims);
    }
    sha256_finish(&s, sum);
    for (size_t i = 0; i < sizeof sum; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

void calibration_machine_key(char out[256], const char *gpu) {
    char cpu[160];
    cpu_describe(cpu, sizeof cpu);
    if (*gpu)
        snprintf(out, 256, "%s", gpu);
    else
        snprintf(out, 256, "%s, %d cores", cpu, pool_default_threads());
}

static char *data_dir(void) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && data[0] == '/') return path_join(data, "hearth");
    return home && home[0] == '/' ? path_join(home, ".local/share/hearth") : NULL;
}

/* --- reading --- */

typedef struct store {
    char             *text;
    const json_value *entries; /* NULL: none */
    arena             mem;
} store;

static void store_open(store *s) {
    char             *dir = data_dir(), *path = dir ? path_join(dir, "calibration.json") : NULL;
    const json_value *v;
    int64_t           version;
    size_t            n;
    *s = (store){ 0 };
    arena_init(&s->mem, 64 << 20);
    if (path && file_exists(path) && file_read(&s->text, &n, path, MAX_FILE, NULL) == 0 &&
        json_parse(&v, s->text, n, &s->mem, NULL) == 0 && json_int(json_get(v, "version"), &version) && version == 1 &&
        json_is(json_get(v, "entries"), JSON_K_ARRAY))
        s->entries = json_get(v, "entries");
    free(path);
    free(dir);
}

static void store_close(store *s) {
    arena_deinit(&s->mem);
    free(s->text);
}

static bool copy(char *out, size_t room, const json_value *v) {
    const char *text = json_cstr(v);
    if (!text || strlen(text) >= room) return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool positive(double *out, const json_value *v) { return json_number(v, out) && isfinite(*out) && *out > 0; }

static bool read_entry(calibration *c, const json_value *v) {
    *c = (calibration){ 0 };
    if (!positive(&c->disk, json_get(v, "disk"))) c->disk = 0;
    return copy(c->model, sizeof c->model, json_get(v, "model")) &&
           copy(c->machine, sizeof c->machine, json_get(v, "machine")) &&
           copy(c->name, sizeof c->name, json_get(v, "name")) &&
           copy(c->cache_type, sizeof c->cache_type, json_get(v, "cache_type")) &&
           positive(&c->prompt, json_get(v, "prompt")) && positive(&c->generation, json_get(v, "generation")) &&
           positive(&c->token_bytes, json_get(v, "token_bytes")) &&
           positive(&c->token_products, json_get(v, "token_products")) &&
           json_int(json_get(v, "prompt_tokens"), &c->prompt_tokens) &&
           json_int(json_get(v, "generated_tokens"), &c->generated_tokens) &&
           json_int(json_get(v, "threads"), &c->threads) && json_int(json_get(v, "measured_at"), &c->measured_at);
}

static bool same_place(const calibration *a, const char *model, const char *machine, const char *cache_type) {
    return strcmp(a->model, model) == 0 && strcmp(a->machine, machine) == 0 && strcmp(a->cache_type, cache_type) == 0;
}

bool calibration_find(calibration *out, const char *model, const char *machine, const char *cache_type) {
    store s;
    bool  found = false;
    store_open(&s);
    for (size_t i = 0; !found && i < json_count(s.entries); i++)
        found = read_entry(out, json_at(s.entries, i)) && same_place(out, model, machine, cache_type);
    store_close(&s);
    return found;
}

bool calibration_estimate(calibration *out, const char *machine, double token_bytes, double token_products) {
    calibration c;
    store       s;
    double      best = INFINITY;
    if (token_bytes <= 0 || token_products <= 0) return false;
    store_open(&s);
    for (size_t i = 0; i < json_count(s.entries); i++) {
        if (!read_entry(&c, json_at(s.entries, i)) || strcmp(c.machine, machine) != 0) continue;
        double away = fabs(log(c.token_bytes / token_bytes)); /* the most similar one tells most */
        if (away >= best || away > log(MAX_RATIO)) continue;
        best = away;
        *out = c;
        out->generation = c.generation * c.token_bytes / token_bytes;
        out->prompt = c.prompt * c.token_products / token_products;
    }
    store_close(&s);
    return isfinite(best);
}

/* --- writing --- */

static void put_entry(str *out, const calibration *c) {
    const struct {
        const char *key, *text;
    } texts[] = {
        { "model", c->model }, { "machine", c->machine }, { "name", c->name }, { "cache_type", c->cache_type }
    };
    str_push(out, '{');
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        str_printf(out, "\"%s\":", texts[i].key);
        str_put_json(out, texts[i].text, strlen(texts[i].text));
        str_push(out, ',');
    }
    str_printf(out, "\"prompt\":%.6g,\"generation\":%.6g,\"token_bytes\":%.0f,\"token_products\":%.0f,", c->prompt,
               c->generation, c->token_bytes, c->token_products);
    str_printf(out, "\"prompt_tokens\":%lld,\"generated_tokens\":%lld,\"threads\":%lld,\"measured_at\":%lld",
               (long long)c->prompt_tokens, (long long)c->generated_tokens, (long long)c->threads,
               (long long)c->measured_at);
    if (c->disk > 0) str_printf(out, ",\"disk\":%.0f", c->disk);
    str_push(out, '}');
}

static int write_text(const char *path, const str *text, err *e) {
    file_replace r;
    int          rc = file_replace_begin(&r, path, e);
    if (rc < 0) return rc;
    if (fwrite(text->data, 1, text->len, r.out) != text->len) {
        rc = err_set_errno(e, "cannot write %s", path);
        file_replace_abort(&r);
        return rc;
    }
    return file_replace_commit(&r, e);
}

int calibration_store(const calibration *c, err *e) {
    char       *dir = data_dir(), *path = dir ? path_join(dir, "calibration.json") : NULL;
    store       s;
    calibration old;
    str         out;
    int         rc = 0, n = 1;
    if (!dir)
        rc = err_set(e, ERR_ARG, "there is no place to store the measurement: neither XDG_DATA_HOME nor HOME is set");
    else if (!path)
        rc = err_set_nomem(e);
    if (rc == 0) rc = dir_make(dir, e);
    if (rc == 0) {
        str_init(&out);
        store_open(&s);
        str_puts(&out, "{\"version\":1,\"entries\":[\n");
        put_entry(&out, c);
        for (size_t i = 0; n < MAX_ENTRIES && i < json_count(s.entries); i++) {
            if (!read_entry(&old, json_at(s.entries, i)) || same_place(&old, c->model, c->machine, c->cache_type))
                continue;
            str_puts(&out, ",\n");
            put_entry(&out, &old);
            n++;
        }
        str_puts(&out, "\n]}\n");
        store_close(&s);
        rc = str_ok(&out) ? write_text(path, &out, e) : err_set_nomem(e);
        str_deinit(&out);
    }
    free(path);
    free(dir);
    return rc;
}
