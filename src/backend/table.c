/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of this build's backends. */
#include "backend/backend.h"
#include "backend/parts.h"

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

bool backend_is_auto(const char *id) { return !id || !*id || strcmp(id, "auto") == 0 || strncmp(id, "auto:", 5) == 0; }

/* The device that an id means, which may be unnamed in it; NULL: the preferred one. */
static const char *meant(const char *id) {
    if (!backend_is_auto(id)) return id;
    return id && strlen(id) > 5 ? id + 5 : NULL;
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

/* The backend whose driver must be started for one device; NULL: none. */
static const nn_backend *driver_of(const char *id) {
    if (backend_is_auto(id)) return table[0]->prepare ? table[0] : NULL;
    for (const nn_backend *const *b = table; *b; b++) {
        if ((*b)->prepare && is_of(*b, id)) return *b;
    }
    return NULL;
}

bool backend_has_driver(const char *id) {
    backend_parts p;
    bool          has = false;
    if (backend_parts_read(&p, id, NULL) < 0) return false;
    for (int i = 0; i < p.n; i++) has = has || driver_of(p.part[i].device);
    return has;
}

int backend_prepare(const char *id, err *e) {
    backend_parts p;
    int           rc = backend_parts_read(&p, id, e);
    for (int i = 0; i < p.n && rc == 0; i++) {
        const nn_backend *b = driver_of(p.part[i].device);
        if (b) rc = b->prepare(meant(p.part[i].device), e);
    }
    return rc;
}

/* Several devices: their names, and what they have together. The machine's own memory does not count beside others. */
static int find_divided(const char *id, backend_parts *p, const nn_backend **backend, nn_device *out, err *e) {
    nn_device d;
    bool      gpus = true;
    *out = (nn_device){ .kind = NN_DEVICE_MIXED, .divided = true };
    for (int i = 0; i < p->n; i++) {
        int rc = backend_find(p->part[i].device, backend, &d, e);
        if (rc < 0) return rc;
        if (d.kind == NN_DEVICE_CPU && backend_is_auto(p->part[i].device))
            return err_set(e, ERR_NOTFOUND, "device '%s': there is no GPU", id);
        snprintf(p->part[i].device, sizeof p->part[i].device, "%.31s", d.id);
        gpus = gpus && d.kind == NN_DEVICE_GPU;
        if (d.kind != NN_DEVICE_GPU && i < p->n - 1) continue;
        size_t at = strlen(out->name);
        snprintf(out->name + at, sizeof out->name - at, "%s%s", at ? ", " : "", d.name);
        out->total_bytes += d.total_bytes;
    }
    if (gpus) out->kind = NN_DEVICE_GPU;
    *backend = &backend_divided;
    return backend_parts_write(p, out->id, e);
}

int backend_find(const char *id, const nn_backend **backend, nn_device *device, err *e) {
    nn_device     devices[NN_MAX_DEVICES];
    err           why = { 0 };
    str           known;
    backend_parts parts;
    if (backend_parts_read(&parts, id, e) < 0) return ERR_ARG;
    if (parts.n > 1) return find_divided(id, &parts, backend, device, e);
    id = meant(id);
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

int backend_gpus(const char *id, nn_device *out, int cap) {
    nn_device         all[NN_MAX_DEVICES];
    const nn_backend *backend;
    int               n = backend_devices(all, NN_MAX_DEVICES), found = 0;
    if (cap < 1 || backend_find(id, &backend, &out[0], NULL) < 0 || out[0].kind != NN_DEVICE_GPU) return 0;
    found++;
    for (int i = 0; i < n && found < cap; i++) {
        if (all[i].kind == NN_DEVICE_GPU && strcmp(all[i].id, out[0].id) != 0) out[found++] = all[i];
    }
    return found;
}
