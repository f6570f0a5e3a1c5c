/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys are asked for when some are given, or when the server listens beyond this machine. The capability token is made
 * at the first start and is always a valid key: whoever may read the owner's files may use the owner's server. Without
 * given keys the Unix socket, which only the owner can open, stays free of them.
 */
#include "cli/serve/keys.h"

#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_KEY_FILE = 1 << 20 };

/* Creates the directories above path, for the owner only. */
static int make_parents(const char *path, err *e) {
    char *copy = strdup(path);
    int   rc = 0;
    if (!copy) return err_set_nomem(e);
    for (char *p = strchr(copy + 1, '/'); p && rc == 0; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST) rc = err_set_errno(e, "cannot create %s", copy);
        *p = '/';
    }
    free(copy);
    return rc;
}

static void token_path(const config_values *v, str *out) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME"),
               *given = config_text(v, "security.token_file");
    if (given)
        str_puts(out, given);
    else if (state && state[0] == '/')
        str_printf(out, "%s/hearth/token", state);
    else if (home && home[0] == '/')
        str_printf(out, "%s/.local/state/hearth/token", home);
}

static int add_token(auth *keys, const config_values *v, err *e) {
    str path, token;
    int rc = 0;
    str_init(&path);
    str_init(&token);
    token_path(v, &path);
    if (path.len == 0)
        rc = err_set(e, ERR_ARG, "there is no place for the token; give --token-file or security.token_file");
    if (rc == 0) rc = make_parents(str_cstr(&path), e);
    if (rc == 0) rc = auth_token_file(str_cstr(&path), &token, e);
    if (rc == 0) rc = auth_add_owner(keys, (view){ token.data, token.len }, e);
    str_deinit(&path);
    str_deinit(&token);
    return rc;
}

static int add_list(auth *keys, const config_value *list, err *e) {
    str lines;
    int rc = 0;
    str_init(&lines);
    for (size_t i = 0; i < list->n_texts; i++) str_printf(&lines, "%s\n", list->texts[i]);
    if (!str_ok(&lines)) rc = err_set_nomem(e);
    if (rc == 0 && lines.len) rc = auth_add_lines(keys, str_cstr(&lines), list->where, e);
    str_deinit(&lines);
    return rc;
}

int serve_keys_load(auth **out, const config_values *v, bool beyond_loopback, err *e) {
    const char         *file = config_text(v, "security.api_key_file");
    const config_value *list = config_get(v, "security.api_keys");
    char               *text = NULL;
    size_t              n = 0;
    int                 rc = auth_open(out, e);
    if (rc < 0) return rc;
    auth_set_limits(*out, config_real(v, "security.rate_requests"), config_real(v, "security.rate_tokens"));
    if (file && (rc = file_read(&text, &n, file, MAX_KEY_FILE, e)) == 0) rc = auth_add_lines(*out, text, file, e);
    free(text);
    if (rc == 0) rc = add_list(*out, list, e);
    if (rc == 0 && (file || list->n_texts))
        auth_require(*out, false);
    else if (rc == 0 && beyond_loopback)
        auth_require(*out, true);
    if (rc == 0) {
        err why = { 0 };
        int bad = add_token(*out, v, &why);
        if (bad < 0 && (beyond_loopback || config_text(v, "security.token_file"))) {
            rc = bad;
            if (e) *e = why;
        } else if (bad < 0) {
            log_warn("serve", "no capability token: %s", why.msg);
        }
    }
    if (rc == 0) return 0;
    auth_free(*out);
    *out = NULL;
    return rc;
}
