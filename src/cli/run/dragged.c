/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/dragged.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Reads the word at *at as a shell would: quotes, and backslashes before single characters. False at the end. */
static bool next_word(const char **at, str *out) {
    const char *p = *at + strspn(*at, " \t\r\n");
    char        quote = 0;
    str_clear(out);
    if (!*p) return false;
    for (; *p && (quote || !strchr(" \t\r\n", *p)); p++) {
        if (quote ? *p == quote : *p == '\'' || *p == '"')
            quote = quote ? 0 : *p;
        else if (*p == '\\' && p[1] && quote != '\'')
            str_push(out, *++p);
        else
            str_push(out, *p);
    }
    *at = p;
    return true;
}

/* Without "file://"; NULL: that is not the absolute path of a file. */
static const char *file_of(const char *word) {
    struct stat st;
    if (strncmp(word, "file://", 7) == 0) word += 7;
    return word[0] == '/' && stat(word, &st) == 0 && S_ISREG(st.st_mode) ? word : NULL;
}

bool dragged_first(const char *text) {
    str word;
    str_init(&word);
    bool is = next_word(&text, &word) && str_ok(&word) && file_of(str_cstr(&word));
    str_deinit(&word);
    return is;
}

static bool is_text(const char *data, size_t bytes) {
    unsigned cp;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = utf8_decode(data + i, bytes - i, &cp);
        if (n == 0 || cp == 0) return false;
    }
    return true;
}

static int add_file(const char *path, str *out, err *e) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char       *data = NULL;
    size_t      bytes = 0;
    int         rc = file_read(&data, &bytes, path, DRAGGED_MAX_BYTES, e);
    if (rc == 0 && !is_text(data, bytes))
        rc = err_set(e, ERR_UNSUPPORTED, "%s is not a text file; images and other files cannot be sent", path);
    if (rc == 0) {
        str_printf(out, "\n\n%s:\n```\n", name);
        str_append(out, data, bytes);
        str_puts(out, bytes && data[bytes - 1] == '\n' ? "```" : "\n```");
    }
    free(data);
    return rc;
}

int dragged_add(const char *text, str *out, int *n, err *e) {
    const char *at = text;
    str         word;
    int         rc = 0;
    *n = 0;
    str_init(&word);
    str_puts(out, text);
    while (rc == 0 && next_word(&at, &word)) {
        const char *path = str_ok(&word) ? file_of(str_cstr(&word)) : NULL;
        if (!path) continue;
        rc = add_file(path, out, e);
        ++*n;
    }
    if (rc == 0 && (!str_ok(&word) || !str_ok(out))) rc = err_set_nomem(e);
    str_deinit(&word);
    return rc;
}
