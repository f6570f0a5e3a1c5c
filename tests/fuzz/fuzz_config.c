/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as server.yaml or as settings of a model (the first byte chooses). What is accepted is written down as
 * `hearth config show` does and must mean the same when it is read again; then a key of it is changed.
 */
#include "config/edit.h"
#include "config/model.h"
#include "config/server.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_values(const config_values *v, str *out) {
    size_t      len = 0;
    const char *section = "";
    for (size_t i = 0; i < v->schema->n; i++) {
        const config_key *k = &v->schema->keys[i];
        const char       *dot = strchr(k->path, '.');
        size_t            n = dot ? (size_t)(dot - k->path) : 0;
        if (k->secret) continue;
        if (n && (n != len || strncmp(section, k->path, n) != 0)) str_printf(out, "%.*s:\n", (int)n, k->path);
        str_printf(out, "%s%s: ", n ? "  " : "", dot ? dot + 1 : k->path);
        config_value_write(k, &v->v[i], false, out);
        str_push(out, '\n');
        section = k->path;
        len = n;
    }
}

static void again(const config_values *v, arena *mem) {
    config_values other;
    config_report r;
    str           first, second;
    str_init(&first);
    str_init(&second);
    config_report_init(&r, "again");
    write_values(v, &first);
    if (str_ok(&first) && first.len < CONFIG_MAX_BYTES && config_values_init(&other, v->schema, mem)) {
        config_read(&other, (view){ first.data, first.len }, CONFIG_FROM_SERVER, mem, &r);
        write_values(&other, &second);
        if (r.n && !r.no_memory) abort();
        if (!r.no_memory && str_ok(&second) && strcmp(str_cstr(&first), str_cstr(&second)) != 0) abort();
    }
    config_report_deinit(&r);
    str_deinit(&first);
    str_deinit(&second);
}

/* A key is changed in what was accepted, or refused; config_edit itself sees to it that nothing else changes. */
static void edit(view text, bool take_out) {
    const config_key *k = config_find_key(&config_server_schema, "transport.port");
    str               out, gone;
    err               e = { 0 };
    str_init(&out);
    str_init(&gone);
    if (config_edit(text, &config_server_schema, k, take_out ? NULL : "81", &out, &e) == 0 &&
        out.len < CONFIG_MAX_BYTES &&
        config_edit((view){ str_cstr(&out), out.len }, &config_server_schema, k, NULL, &gone, &e) < 0 &&
        e.code == ERR_FORMAT)
        abort();
    str_deinit(&out);
    str_deinit(&gone);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool          model = size && data[0] == 'm';
    view          text = { size ? (const char *)data + 1 : "", size ? size - 1 : 0 };
    config_values v;
    config_report r;
    config_model  m;
    arena         mem;
    str           lines;
    err           e = { 0 };
    arena_init(&mem, (size_t)64 << 20);
    config_report_init(&r, "f.yaml");
    str_init(&lines);
    if (config_values_init(&v, model ? &config_model_schema : &config_server_schema, &mem)) {
        config_read(&v, text, CONFIG_FROM_SERVER, &mem, &r);
        if (r.n == 0 && !r.no_memory) again(&v, &mem);
        if (r.n == 0 && !r.no_memory && !model) edit(text, size % 2);
        (model ? config_model_check : config_server_check)(&v, &r);
        config_report_write(&r, &lines);
        (void)config_report_result(&r, &e);
    }
    str_deinit(&lines);
    config_report_deinit(&r);
    arena_deinit(&mem);
    if (config_model_read(&m, text, "m.yaml", &e) == 0) config_model_deinit(&m);
    return 0;
}
