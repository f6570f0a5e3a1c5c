/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which field of the body a mistake is in, where its finder knew no more than what the sentence says: "dimensions: ...".
 *
 * The runtime finds such mistakes far from the body. It names a schema and tools as they are known to it; here the
 * field is found in which this protocol has them.
 */
#include "server/internal.h"

#include <stdio.h>
#include <string.h>

static bool has(const node *body, const char *key) {
    node n = node_get(body, key);
    return node_is(body) == NODE_OBJECT && node_is(&n) != NODE_ABSENT;
}

/* The first of the fields that the body has; NULL: none of them. */
static const char *first_of(const node *body, const char *const *fields) {
    while (*fields && !has(body, *fields)) fields++;
    return *fields;
}

void error_find_field(failure *f, const node *body) {
    static const char *const schemas[] = { "json_schema",   "response_format",    "format",
                                           "text",          "guided_json",        "output_format",
                                           "output_config", "structured_outputs", NULL };
    static const char *const tools[] = { "tools", "functions", NULL };
    size_t                   n = strcspn(f->message, ":"), first = strcspn(f->message, ".[:");
    char                     key[64], path[sizeof f->param];
    const char              *field = NULL;
    if (f->status != 400 || f->param[0] || f->message[n] != ':' || n >= sizeof path || first >= sizeof key) return;
    snprintf(key, sizeof key, "%.*s", (int)first, f->message);
    snprintf(path, sizeof path, "%.*s", (int)n, f->message);
    if (strcmp(key, "json_schema") == 0)
        field = first_of(body, schemas);
    else if (strncmp(key, "tool ", 5) == 0)
        field = first_of(body, tools);
    else if (!strchr(path, ' ') && has(body, key))
        field = path;
    if (!field) return;
    snprintf(f->param, sizeof f->param, "%s", field);
    if (!f->code[0]) snprintf(f->code, sizeof f->code, "invalid_value");
}
