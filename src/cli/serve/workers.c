/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve/workers.h"

#include <string.h>
#include <unistd.h>

/* A worker reads a file that is not to be trusted and needs to know nothing: no tokens, no paths. What sanitizers and
 * the dynamic linker look for is passed on, and which GPUs are seen in which order: numbers of devices mean the same. */
static char *const *worker_environment(void) {
    static const char *const kept[] = { "ASAN_OPTIONS=",         "UBSAN_OPTIONS=",     "LSAN_OPTIONS=",
                                        "TSAN_OPTIONS=",         "MSAN_OPTIONS=",      "LLVM_PROFILE_FILE=",
                                        "GCOV_PREFIX=",          "GCOV_PREFIX_STRIP=", "LD_LIBRARY_PATH=",
                                        "CUDA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER=" };
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

void serve_workers(const config_values *v, host_options *o) {
    const config_value *limit = config_get(v, "models.mem_limit");
    o->worker_env = worker_environment();
    if (limit->origin)
        (void)device_memory_set(&o->budget, DEVICE_CPU, limit->integer < 0 ? HOST_NO_LIMIT : (uint64_t)limit->integer);
}
