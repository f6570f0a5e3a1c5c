/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schema (up to the first line break) and a text. The schema compiles or is refused with a sentence; a text that the
 * rules accept parses as JSON.
 */
#include "base/json.h"
#include "grammar/schema/schema.h"
#include "unit/support/ir_walk.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t         n = end ? (size_t)(end - data) : size, rest = end ? size - n - 1 : 0;
    ir            *g;
    ir_sym         start;
    err            e = { 0 };
    int            rc;
    if (n > 1024 || ir_open(&g, &e) < 0) return 0;
    rc = schema_compile(g, (view){ (const char *)data, n }, &start, &e);
    if (rc < 0 && (e.code != rc || !e.msg[0])) abort();
    if (rc == 0 && rest && rest < 100 && ir_walk(g, start, (const char *)end + 1, rest, NULL)) {
        const json_value *v;
        arena             a;
        arena_init(&a, 0);
        if (json_parse(&v, (const char *)end + 1, rest, &a, &e) < 0 && e.code != ERR_LIMIT) abort();
        arena_deinit(&a);
    }
    ir_free(g);
    return 0;
}
