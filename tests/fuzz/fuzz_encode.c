/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text through byte-level vocabularies of 256 bytes and some merges, with several pre-tokenizers: valid UTF-8 comes
 * back unchanged, whole and streamed; anything else does no harm.
 */
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pres[] = { "gpt-2",        "llama-bpe",   "qwen2",   "qwen35",     "gpt-4o", "kimi-k2",
                                    "deepseek-llm", "deepseek-v3", "default", "exaone-moe", "bloom" };
enum { N = sizeof pres / sizeof pres[0] };
static tok *toks[N];

static void open_all(void) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    str               file;
    err               e = { 0 };
    str_init(&file);
    for (unsigned i = 0; i < 256; i++) str_printf(&file, "%c%c== %u\n", alphabet[i >> 2], alphabet[(i & 3) << 4], i);
    str_puts(&file, "IGE= 256\nYWI= 257\nICA= 258\nICAgIA== 259\nYWFh 260\nYWE= 261\nMTI= 262\nCgo= 263\nw6k= 264\n");
    for (size_t i = 0; i < N; i++) {
        if (tok_open_tiktoken(&toks[i], str_cstr(&file), file.len, pres[i], &e) < 0) {
            fprintf(stderr, "%s\n", e.msg);
            abort();
        }
    }
    str_deinit(&file);
}

static bool valid_utf8(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n;) {
        unsigned cp;
        size_t   k = utf8_decode((const char *)p + i, n - i, &cp);
        if (k == 0) return false;
        i += k;
    }
    return true;
}

static void check(const tok *t, const uint8_t *data, size_t size) {
    tok_ids    ids = { 0 };
    str        back, streamed;
    err        e = { 0 };
    tok_stream s;
    str_init(&back);
    str_init(&streamed);
    if (tok_encode(t, (const char *)data, size, TOK_PARSE_SPECIAL, &ids, &e) < 0 ||
        tok_decode(t, ids.data, ids.count, false, &back, &e) < 0)
        abort();
    tok_stream_init(&s, t, false);
    for (size_t i = 0; i < ids.count; i++) {
        if (tok_stream_push(&s, ids.data[i], &streamed, &e) < 0) abort();
    }
    tok_stream_finish(&s, &streamed);
    if (back.len != streamed.len || (back.len && memcmp(back.data, streamed.data, back.len) != 0)) abort();
    if (valid_utf8(data, size) && (back.len != size || (size && memcmp(back.data, data, size) != 0))) abort();
    tok_ids_deinit(&ids);
    str_deinit(&back);
    str_deinit(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!toks[0]) open_all();
    if (size == 0) return 0;
    check(toks[data[0] % N], data + 1, size - 1);
    return 0;
}
