/* SPDX-License-Identifier: Apache-2.0 */
/* The table as a commented file. */
#include "config/server.h"

#include <string.h>

/* "# text" lines of at most 78 columns. */
static void put_comment(const char *indent, const char *text, str *out) {
    size_t column = 0, most = 76 - strlen(indent);
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column && column + 1 + n > most) {
            str_push(out, '\n');
            column = 0;
        }
        if (column == 0) str_printf(out, "%s#", indent);
        str_push(out, ' ');
        str_append(out, text, n);
        column += n + 1;
        text += n;
        text += strspn(text, " ");
    }
    str_push(out, '\n');
}

static void put_key(const config_key *k, const char *indent, str *out) {
    const char *dot = strrchr(k->path, '.');
    put_comment(indent, k->help, out);
    if (k->dflt)
        str_printf(out, "%s#%s: %s\n", indent, dot ? dot + 1 : k->path, k->dflt);
    else
        str_printf(out, "%s#%s:\n", indent, dot ? dot + 1 : k->path);
}

void config_document_yaml(const config_schema *s, const char *head, str *out) {
    put_comment("", head, out);
    for (size_t i = 0; i < s->n; i++)
        if (!strchr(s->keys[i].path, '.')) put_key(&s->keys[i], "", out);
    for (const config_section *x = s->sections; x && x->name; x++) {
        size_t n = strlen(x->name);
        str_push(out, '\n');
        put_comment("", x->help, out);
        str_printf(out, "%s:\n", x->name);
        for (size_t i = 0; i < s->n; i++) {
            if (strncmp(s->keys[i].path, x->name, n) == 0 && s->keys[i].path[n] == '.') put_key(&s->keys[i], "  ", out);
        }
    }
}
