/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of this build's backends. */
#include "backend/backend.h"

#include <string.h>

/* In the order of preference where nobody names a device. GPUs are behind the CPU until workers may use them inside their
 * sandbox: the same model would compute elsewhere in `hearth run` than in `hearth serve`. */
static const nn_backend *const table[] = { &backend_cpu,
#ifdef HEARTH_CUDA
                                           &backend_cuda,
#endif
                                           &backend_scalar, NULL };

int backend_devices(nn_device *out, int cap) { return nn_device_list(table, out, cap); }

/* Looks a device up; NULL: the preferred one. False: there is none. */
static bool look_up(const char *id, const nn_backend **backend, nn_device *device) {
    nn_device devices[NN_MAX_DEVICES];
    for (const nn_backend *const *b = table; *b; b++) {
        int n = (*b)->devices(devices, NN_MAX_DEVICES);
        for (int i = 0; i < n; i++) {
            if (id ? strcmp(devices[i].id, id) != 0 : devices[i].kind == NN_DEVICE_REFERENCE) continue;
            *backend = *b;
            *device = devices[i];
            return true;
        }
    }
    return false;
}

/* The backend whose driver must be started for a device; NULL: none. */
static const nn_backend *driver_of(const char *id) {
    if (!id || !*id || strcmp(id, "auto") == 0) return table[0]->prepare ? table[0] : NULL;
    for (const nn_backend *const *b = table; *b; b++) {
        size_t n = strlen((*b)->name);
        if ((*b)->prepare && strncmp(id, (*b)->name, n) == 0 && id[n] == ':') return *b;
    }
    return NULL;
}

bool backend_has_driver(const char *id) { return driver_of(id) != NULL; }

int backend_prepare(const char *id, err *e) {
    const nn_backend *b = driver_of(id);
    bool              named = id && *id && strcmp(id, "auto") != 0;
    return b ? b->prepare(named ? id : NULL, e) : 0;
}

int backend_find(const char *id, const nn_backend **backend, nn_device *device, err *e) {
    nn_device devices[NN_MAX_DEVICES];
    str       known;
    if (id && (!*id || strcmp(id, "auto") == 0)) id = NULL;
    if (look_up(id, backend, device)) return 0;
    str_init(&known);
    for (int i = 0, n = backend_devices(devices, NN_MAX_DEVICES); i < n; i++) {
        if (devices[i].kind != NN_DEVICE_REFERENCE) str_printf(&known, "%s%s", known.len ? ", " : "", devices[i].id);
    }
    int rc =
        err_set(e, ERR_NOTFOUND, "there is no device '%s'; this machine has %s", id ? id : "auto", str_cstr(&known));
    str_deinit(&known);
    return rc;
}
