/* SPDX-License-Identifier: Apache-2.0 */
/* What a request asks for that has no effect here: named to the client in a header, and once in the log. */
#include "base/log.h"
#include "server/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LOGGED = 256, NAME_BYTES = 64, HEADER_BYTES = 400 };

static pthread_mutex_t logged_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static char            logged[MAX_LOGGED][2 * NAME_BYTES];
static size_t          n_logged;

static bool first_time(const char *name) {
    bool fresh = true;
    pthread_mutex_lock(&logged_lock);
    for (size_t i = 0; i < n_logged && fresh; i++) fresh = strcmp(logged[i], name) != 0;
    if (fresh && n_logged < MAX_LOGGED)
        snprintf(logged[n_logged++], sizeof logged[0], "%s", name);
    else
        fresh = false;
    pthread_mutex_unlock(&logged_lock);
    return fresh;
}

/* Names may be a client's own words: in a header only what needs no quoting. */
static void plain_name(char out[NAME_BYTES], view name) {
    size_t n = name.len < NAME_BYTES ? name.len : NAME_BYTES - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name.data[i];
        out[i] = (char)(isalnum(c) || strchr("_-.:[]", c) ? c : '?');
    }
    out[n] = '\0';
}

static bool listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n) {
        if ((p == list || p[-1] == ' ') && (p[n] == ',' || p[n] == '\0')) return true;
    }
    return false;
}

void exchange_ignore(exchange *x, view name) {
    char plain[NAME_BYTES], full[2 * NAME_BYTES];
    str *list = &x->core->ignored;
    plain_name(plain, name);
    if (!plain[0] || listed(str_cstr(list), plain)) return;
    if (list->len < HEADER_BYTES) str_printf(list, "%s%s", list->len ? ", " : "", plain);
    snprintf(full, sizeof full, "%s: %s", x->route->api->name, plain);
    if (first_time(full)) log_info("server", "%s was accepted, but has no effect (logged once)", full);
}

void exchange_ignore_members(exchange *x, const char *const *names) {
    for (size_t i = 0; names[i]; i++) {
        node n = read_any(&x->in, &x->body, names[i]);
        if (node_is(&n) != NODE_ABSENT) exchange_ignore(x, view_of(names[i]));
    }
}
