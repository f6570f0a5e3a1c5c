/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo model is found from the program's own place:
 *     <build>/hearth   ../models/demo/demo.gguf
 *     <prefix>/bin     ../share/hearth/models/demo/demo.gguf
 */
#include "cli/models.h"

#include "base/file.h"
#include "base/str.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int program_dir(char *out, size_t cap, err *e) {
    ssize_t n = readlink("/proc/self/exe", out, cap - 1);
    if (n < 0) return err_set_errno(e, "cannot find the program's own place");
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash) *slash = '\0';
    return 0;
}

static int find_demo(char **out, err *e) {
    static const char *const places[] = { "../models/demo/demo.gguf", "../share/hearth/models/demo/demo.gguf" };
    char                     dir[PATH_MAX];
    int                      rc = program_dir(dir, sizeof dir, e);
    for (size_t i = 0; rc == 0 && i < sizeof places / sizeof places[0]; i++) {
        char *path = path_join(dir, places[i]);
        if (!path) return err_set_nomem(e);
        if (file_exists(path)) {
            *out = path;
            return 0;
        }
        free(path);
    }
    return rc < 0 ? rc : err_set(e, ERR_NOTFOUND, "the demo model is not installed beside %s", dir);
}

int cli_model_path(char **out, const char *name, err *e) {
    *out = NULL;
    if (!name) name = "demo";
    if (file_exists(name) || dir_exists(name)) {
        *out = strdup(name);
        return *out ? 0 : err_set_nomem(e);
    }
    if (strcmp(name, "demo") == 0) return find_demo(out, e);
    return err_set(e, ERR_NOTFOUND, "there is no model '%s': expected a GGUF file, a model directory or 'demo'", name);
}
