/* SPDX-License-Identifier: Apache-2.0 */
/* Any JSON as the variables of fixed templates that use most of the dialect. */
#include "base/arena.h"
#include "template/template.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char TEMPLATE[] =
    "{%- macro show(v, depth=0) -%}{%- if v is mapping -%}{%- for k, x in v|dictsort -%}{{ k }}={{ show(x, depth + 1) "
    "}};{%- endfor -%}"
    "{%- elif v is iterable and v is not string -%}{%- for x in v -%}{{ show(x, depth + 1) }},{%- endfor -%}"
    "{%- else -%}{{ v }}{{ v|string|upper }}{{ v|tojson }}{%- endif -%}{%- endmacro -%}"
    "{%- set ns = namespace(n=0) -%}"
    "{%- for m in messages -%}{%- set ns.n = ns.n + 1 -%}{{ loop.index }}{{ m.role }}: {{ m.content|default('-', true) "
    "}}"
    "{%- if m.content is string -%}{{ m.content.split('</think>')[-1].strip()|title }}{{ m.content[1:-1] }}{{ "
    "m.content|urlencode }}"
    "{{ m.content|truncate(9) }}{{ '%s|%r' % (m.content, m.content) }}{{ m.content|int }}{{ m.content|float }}{%- "
    "endif -%}"
    "{%- if m.tool_calls -%}{%- for c in m.tool_calls -%}{{ c.function.name }}{{ c.function.arguments|tojson(indent=2, "
    "sort_keys=true) }}"
    "{%- endfor -%}{%- endif -%}{%- endfor -%}"
    "{{ show(extra) }}{{ extra }}{{ numbers|sort|join(',') }}{{ numbers|sum }}{{ numbers|map('round', 2)|list }}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tmpl      *t;
    arena             a;
    err               e;
    const json_value *v = NULL;
    if (!t && tmpl_open(&t, TEMPLATE, sizeof TEMPLATE - 1, &e) < 0) abort();
    arena_init(&a, 16 << 20);
    if (json_parse(&v, (const char *)data, size, &a, &e) == 0 && json_is(v, JSON_K_OBJECT)) {
        size_t    n = json_count(v);
        tmpl_var *vars = calloc(n + 1, sizeof *vars);
        str       out;
        str_init(&out);
        for (size_t i = 0; vars && i < n; i++)
            vars[i] = (tmpl_var){ v->u.object.members[i].key, &v->u.object.members[i].value };
        tmpl_input in = { .vars = vars,
                          .n_vars = n,
                          .now = { 2026, 1, 2, 15, 4, 5 },
                          .limits = { .steps = 100000, .output_bytes = 1 << 20, .memory_bytes = 8 << 20 } };
        if (vars) (void)tmpl_render(t, &in, &out, NULL, &e);
        str_deinit(&out);
        free(vars);
    }
    arena_deinit(&a);
    return 0;
}
