/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys are asked for when some are given, or when the server listens beyond this machine. The capability token is made
 * at the first start and is always a valid key: whoever may read the owner's files may use the owner's server. Without
 * given keys the Unix socket, which only the owner can open, stays free of them.
 */
#include "cli/serve_keys.h"

#include "base/file.h"

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

static void token_path(const cli_args *a, str *out) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME"), *given = cli_string(a, "token-file", NULL);
    if (given)
        str_puts(out, given);
    else if (state && state[0] == '/')
        str_printf(out, "%s/hearth/token", state);
    else if (home && home[0] == '/')
        str_printf(out, "%s/.local/state/hearth/token", home);
}

static int add_token(auth *keys, const cli_args *a, err *e) {
    str path, token;
    int rc = 0;
    str_init(&path);
    str_init(&token);
    token_path(a, &path);
    if (path.len == 0) rc = err_set(e, ERR_ARG, "there is no place for the token; give --token-file");
    if (rc == 0) rc = make_parents(str_cstr(&path), e);
    if (rc == 0) rc = auth_token_file(str_cstr(&path), &token, e);
    if (rc == 0) rc = auth_add(keys, view_of("token"), (view){ token.data, token.len }, 0, 0, e);
    str_deinit(&path);
    str_deinit(&token);
    return rc;
}

int serve_keys_load(auth **out, const cli_args *a, bool beyond_loopback, err *e) {
    const char *file = cli_string(a, "api-key-file", NULL), *env = getenv("HEARTH_API_KEYS");
    char       *text = NULL;
    size_t      n = 0;
    int         rc = auth_open(out, e);
    if (rc < 0) return rc;
    auth_set_limits(*out, cli_real(a, "rate-requests", 0), cli_real(a, "rate-tokens", 0));
    if (file && (rc = file_read(&text, &n, file, MAX_KEY_FILE, e)) == 0) rc = auth_add_lines(*out, text, file, e);
    free(text);
    if (rc == 0 && env) rc = auth_add_lines(*out, env, "HEARTH_API_KEYS", e);
    if (rc == 0 && (file || env))
        auth_require(*out, false);
    else if (rc == 0 && beyond_loopback)
        auth_require(*out, true);
    if (rc == 0) {
        err why = { 0 };
        int bad = add_token(*out, a, &why);
        if (bad < 0 && (beyond_loopback || cli_string(a, "token-file", NULL))) {
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
