/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of this build's backends. */
#include "backend/backend.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of preference where nobody names a device. */
static const nn_backend *const table[] = {
#ifdef HEARTH_CUDA
    &backend_cuda,
#endif
    &backend_cpu, &backend_scalar, NULL
};

int backend_devices(nn_device *out, int cap) { return nn_device_list(table, out, cap); }

bool backend_is_auto(const char *id) { return !id || !*id || strcmp(id, "auto") == 0; }

int backend_pair_id(const char *id, char device[64], int *n, bool *experts, err *e) {
    static const char word[] = "experts:";
    const char       *stroke = strchr(id, '/'), *more = stroke ? stroke + 1 : "";
    char             *end;
    snprintf(device, 64, "%.*s", (int)num_min(stroke ? stroke - id : (int64_t)strlen(id), 63), id);
    *n = -1;
    *experts = strncmp(more, word, sizeof word - 1) == 0;
    if (!stroke) return 0;
    if (*experts) more += sizeof word - 1;
    long number = strtol(more, &end, 10);
    if (*more < '0' || *more > '9' || *end || number > 10000 || (number == 0 && !*experts))
        return err_set(e, ERR_ARG,
                       "device '%s': expected a number of layers behind the stroke, or experts: and a number", id);
    *n = (int)number;
    return 0;
}

/* Whether a device with this id would be one of b's: "cuda:0" is of cuda. Others are not asked, which may start a
 * driver. */
static bool is_of(const nn_backend *b, const char *id) {
    size_t n = strlen(b->name);
    return strncmp(id, b->name, n) == 0 && (!id[n] || id[n] == ':');
}

/* Looks a device up; NULL: the preferred one. False: there is none. */
static bool look_up(const char *id, const nn_backend **backend, nn_device *device) {
    nn_device devices[NN_MAX_DEVICES];
    for (const nn_backend *const *b = table; *b; b++) {
        int n = !id || is_of(*b, id) ? (*b)->devices(devices, NN_MAX_DEVICES) : 0;
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
static const nn_backend *driver_of(const char *of) {
    char id[64] = "";
    bool experts;
    int  n;
    if (of) (void)backend_pair_id(of, id, &n, &experts, NULL);
    if (backend_is_auto(id)) return table[0]->prepare ? table[0] : NULL;
    for (const nn_backend *const *b = table; *b; b++) {
        if ((*b)->prepare && is_of(*b, id)) return *b;
    }
    return NULL;
}

bool backend_has_driver(const char *id) { return driver_of(id) != NULL; }

int backend_prepare(const char *id, err *e) {
    const nn_backend *b = driver_of(id);
    bool              any = backend_is_auto(id) || strncmp(id, "auto/", 5) == 0;
    return b ? b->prepare(any ? NULL : id, e) : 0;
}

/* A part of the model on this device, the other part on the CPU. */
static int find_pair(const char *id, const nn_backend **backend, nn_device *device, err *e) {
    char base[64], more[32];
    bool experts;
    int  n, rc = backend_pair_id(id, base, &n, &experts, e);
    if (rc == 0) rc = backend_find(base, backend, device, e);
    if (rc < 0) return rc;
    if (device->kind == NN_DEVICE_CPU && backend_is_auto(base))
        return err_set(e, ERR_NOTFOUND, "device '%s': there is no GPU", id);
    snprintf(more, sizeof more, experts ? "/experts:%d" : "/%d", n);
    if (strlen(device->id) + strlen(more) >= sizeof device->id)
        return err_set(e, ERR_ARG, "device '%s' is too long", id);
    strcat(device->id, more);
    *backend = &backend_pair;
    device->kind = NN_DEVICE_PAIR;
    return 0;
}

int backend_find(const char *id, const nn_backend **backend, nn_device *device, err *e) {
    nn_device devices[NN_MAX_DEVICES];
    err       why = { 0 };
    str       known;
    if (id && strchr(id, '/')) return find_pair(id, backend, device, e);
    if (backend_is_auto(id)) id = NULL;
    if (look_up(id, backend, device)) return 0;
    str_init(&known);
    for (int i = 0, n = backend_devices(devices, NN_MAX_DEVICES); i < n; i++) {
        if (devices[i].kind != NN_DEVICE_REFERENCE) str_printf(&known, "%s%s", known.len ? ", " : "", devices[i].id);
    }
    /* A driver that does not start says more than that nothing was found. */
    bool said = id && backend_prepare(id, &why) < 0 && why.msg[0];
    int  rc = err_set(e, ERR_NOTFOUND, "there is no device '%s'%s%s%s; this machine has %s", id ? id : "auto",
                     said ? " (" : "", said ? why.msg : "", said ? ")" : "", str_cstr(&known));
    str_deinit(&known);
    return rc;
}
