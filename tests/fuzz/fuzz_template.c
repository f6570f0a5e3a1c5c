/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a template, rendered with a fixed context. Finding: a crash, a leak, a hang, or text that is not UTF-8.
 */
#include "base/arena.h"
#include "template/template.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char CONTEXT[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"Be "
                              "brief.\"},{\"role\":\"user\",\"content\":\"h\\u00e9llo \\ud83d\\ude00\"},"
                              "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
                              "\"arguments\":{\"a\":[1,2.5,true,null]}}}]}],"
                              "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
                              "\"object\",\"properties\":{}}}}],"
                              "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"s\":\"a,b "
                              "c\",\"n\":7,\"f\":0.5,\"l\":[3,1,2],"
                              "\"d\":{\"b\":1,\"a\":\"x\"}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tmpl *t = NULL;
    err   e;
    if (size > 1 << 14 || tmpl_open(&t, (const char *)data, size, &e) < 0) return 0;
    arena             a;
    const json_value *v = NULL;
    tmpl_var          vars[16];
    size_t            n = 0;
    str               out;
    arena_init(&a, 0);
    str_init(&out);
    if (json_parse(&v, CONTEXT, sizeof CONTEXT - 1, &a, &e) < 0) abort();
    for (; n < json_count(v); n++) vars[n] = (tmpl_var){ v->u.object.members[n].key, &v->u.object.members[n].value };
    tmpl_input in = { .vars = vars,
                      .n_vars = n,
                      .now = { 2026, 1, 2, 15, 4, 5 },
                      .limits = { .steps = 20000, .output_bytes = 1 << 18, .memory_bytes = 4 << 20 } };
    if (tmpl_render(t, &in, &out, NULL, &e) == 0) {
        for (size_t i = 0; i < out.len;) {
            unsigned cp;
            size_t   used = utf8_decode(out.data + i, out.len - i, &cp);
            if (!used) abort();
            i += used;
        }
    }
    tmpl_free(t);
    str_deinit(&out);
    arena_deinit(&a);
    return 0;
}
