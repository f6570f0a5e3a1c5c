/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/demo.h"

#include "base/file.h"
#include "base/str.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cuts the last name off; an empty text when there is none. */
static void to_dir(char *path) {
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = '\0';
}

/* The file that this code was loaded from: the program, or the shared library. */
static void code_dir(char out[PATH_MAX]) {
    static const char here = 0;
    Dl_info           info;
    out[0] = '\0';
    if (!dladdr(&here, &info) || !info.dli_fname || !strchr(info.dli_fname, '/') || !realpath(info.dli_fname, out))
        out[0] = '\0';
    to_dir(out);
}

static void program_dir(char out[PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = '\0';
    to_dir(out);
}

bool runtime_is_demo(const char *name) {
    return strcmp(name, RUNTIME_DEMO) == 0 || strcmp(name, RUNTIME_VISION_DEMO) == 0;
}

int runtime_demo_path(char **out, const char *name, err *e) {
    static const char *const places[] = { "../models", "../share/hearth/models", "../../share/hearth/models" };
    char                     dirs[2][PATH_MAX];
    *out = NULL;
    code_dir(dirs[0]);
    program_dir(dirs[1]);
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; dirs[i][0] && k < sizeof places / sizeof places[0]; k++) {
            str full;
            str_init(&full);
            str_printf(&full, "%s/%s/%s/%s.gguf", dirs[i], places[k], name, name);
            char *path = str_take(&full);
            if (!path) return err_set_nomem(e);
            if (file_exists(path)) {
                *out = path;
                return 0;
            }
            free(path);
        }
    }
    return err_set(e, ERR_NOTFOUND, "the model %s is not installed beside %s", name, dirs[1]);
}
