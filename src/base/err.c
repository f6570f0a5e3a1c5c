/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int err_setv(err *e, int code, const char *fmt, va_list ap) {
    if (e) {
        e->code = code;
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    }
    return code;
}

int err_set(err *e, int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    err_setv(e, code, fmt, ap);
    va_end(ap);
    return code;
}

static void add_reason(err *e, const char *reason) {
    size_t used = strlen(e->msg);
    snprintf(e->msg + used, sizeof e->msg - used, ": %s", reason);
}

int err_wrap(err *e, int rc, const char *fmt, ...) {
    char    old[sizeof e->msg] = "";
    va_list ap;
    if (!e) return rc;
    memcpy(old, e->msg, sizeof old);
    if (e->code != rc || old[0] == '\0') snprintf(old, sizeof old, "%s", err_code_name(rc));
    va_start(ap, fmt);
    err_setv(e, rc, fmt, ap);
    va_end(ap);
    add_reason(e, old);
    return rc;
}

int err_set_errno(err *e, const char *fmt, ...) {
    int     saved = errno;
    va_list ap;
    va_start(ap, fmt);
    err_setv(e, ERR_IO, fmt, ap);
    va_end(ap);
    if (e) add_reason(e, strerror(saved));
    return ERR_IO;
}

int err_set_nomem(err *e) { return err_set(e, ERR_NOMEM, "out of memory"); }

const char *err_code_name(int code) {
    switch (code) {
    case 0: return "ok";
    case ERR_NOMEM: return "out of memory";
    case ERR_IO: return "input/output error";
    case ERR_FORMAT: return "bad format";
    case ERR_UNSUPPORTED: return "unsupported";
    case ERR_ARG: return "bad argument";
    case ERR_LIMIT: return "limit reached";
    case ERR_NOTFOUND: return "not found";
    case ERR_CANCELLED: return "cancelled";
    case ERR_BUSY: return "busy";
    case ERR_LOST: return "device lost";
    case ERR_CONTEXT: return "context too short";
    case ERR_UNLOADED: return "model not loaded";
    case ERR_DEADLINE: return "deadline exceeded";
    default: return "error";
    }
}
