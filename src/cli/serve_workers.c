/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve_workers.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

int serve_memory(const char *text, uint64_t *out, err *e) {
    static const char letters[] = "kmgt";
    char             *end;
    if (strcasecmp(text, "none") == 0) {
        *out = HOST_NO_LIMIT;
        return 0;
    }
    double      value = strtod(text, &end), unit = 1;
    const char *found;
    while (*end == ' ') end++;
    if (*end && (found = strchr(letters, *end | 0x20))) {
        for (const char *p = letters; p <= found; p++) unit *= 1024;
        end++;
        if ((*end | 0x20) == 'i') end++;
        if ((*end | 0x20) == 'b') end++;
    }
    if (end == text || *end || !(value > 0) || value * unit >= 9e18)
        return err_set(e, ERR_ARG, "--mem-limit %s: expected a size such as 8G or 512M, or none", text);
    *out = (uint64_t)(value * unit);
    return 0;
}

/* A worker reads a file that is not to be trusted and needs to know nothing: no tokens, no paths. What sanitizers and
 * the dynamic linker look for is passed on. */
static char *const *worker_environment(void) {
    static const char *const kept[] = { "ASAN_OPTIONS=", "UBSAN_OPTIONS=",     "LSAN_OPTIONS=",
                                        "TSAN_OPTIONS=", "MSAN_OPTIONS=",      "LLVM_PROFILE_FILE=",
                                        "GCOV_PREFIX=",  "GCOV_PREFIX_STRIP=", "LD_LIBRARY_PATH=" };
    enum { N_KEPT = sizeof kept / sizeof *kept };
    static char *list[N_KEPT + 1];
    size_t       n = 0;
    for (char **v = environ; *v; v++) {
        for (size_t i = 0; i < N_KEPT && n < N_KEPT; i++) {
            if (strncmp(*v, kept[i], strlen(kept[i])) == 0) list[n++] = *v;
        }
    }
    list[n] = NULL;
    return list;
}

int serve_workers(const cli_args *a, host_options *o, err *e) {
    const char *limit = cli_string(a, "mem-limit", NULL);
    o->worker_env = worker_environment();
    return limit ? serve_memory(limit, &o->max_bytes, e) : 0;
}
