/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the input, writes what was understood, and demands that the written text parses again and is then stable. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parses text and writes it into out; false when it does not parse. */
static bool rewrite(const char *text, size_t len, str *out) {
    arena             a;
    const json_value *v;
    err               e = { 0 };
    arena_init(&a, 16 << 20);
    int rc = json_parse(&v, text, len, &a, &e);
    if (rc == 0)
        json_write(v, out);
    else if (e.code != rc || !e.msg[0])
        abort();
    arena_deinit(&a);
    return rc == 0;
}

/* The reader by itself: skipping must end at the same place as walking. */
static void skip_all(const char *text, size_t len) {
    json_reader r;
    json_reader_init(&r, text, len);
    json_event ev = json_next(&r);
    if (ev != JSON_ERROR && json_skip(&r, ev) && json_next(&r) != JSON_ERROR && json_next(&r) != JSON_END) abort();
    json_reader_deinit(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    str one, two, three;
    str_init(&one);
    str_init(&two);
    str_init(&three);
    skip_all((const char *)data, size);
    if (rewrite((const char *)data, size, &one)) {
        if (!rewrite(str_cstr(&one), one.len, &two) || !rewrite(str_cstr(&two), two.len, &three)) abort();
        if (two.len != three.len || memcmp(str_cstr(&two), str_cstr(&three), two.len) != 0) abort();
    }
    str_deinit(&one);
    str_deinit(&two);
    str_deinit(&three);
    return 0;
}
