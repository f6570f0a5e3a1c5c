/* SPDX-License-Identifier: Apache-2.0 */
/* A module's kernels by name: read when they are first asked for, gone with it. */
#include "gpu/build.h"

#include <stdlib.h>
#include <string.h>

int gpu_module_kernel(const gpu_kernel **out, gpu_module *m, const char *name, err *e) {
    for (int i = 0; i < m->n_fns; i++) {
        module_fn *f = &m->fns[i];
        if (!f->entry || strcmp(f->name, name) != 0) continue;
        if (!f->kernel) {
            int rc = kernel_read(&f->kernel, m, f, e);
            if (rc != 0) return err_wrap(e, rc, "PTX");
        }
        *out = f->kernel;
        return 0;
    }
    return err_set(e, ERR_NOTFOUND, "PTX: no kernel %s", name);
}

void gpu_module_free(gpu_module *m) {
    if (!m) return;
    for (int i = 0; i < m->n_fns; i++) kernel_free(m->fns[i].kernel);
    for (int i = 0; i < m->n_vars; i++) gpu_memory_remove(m->vars[i].at);
    arena_deinit(&m->mem);
    free(m);
}

void gpu_kernel_shape(const gpu_kernel *k, gpu_shape *out) { *out = k->shape; }
