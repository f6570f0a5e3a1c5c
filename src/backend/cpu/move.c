/* SPDX-License-Identifier: Apache-2.0 */
/* Copying pages and fixed states between steps. A slot's bytes are its layers' states in order. */
#include "backend/cpu/cpu.h"

#include <string.h>

void cpu_page_copy(nn_exec *base, int group, int32_t from, int32_t to) {
    cpu_exec *x = (cpu_exec *)base;
    size_t    bytes = x->page_bytes[group];
    if (bytes == 0) return; /* a model without positions */
    memcpy(x->pages[group] + (size_t)to * bytes, x->pages[group] + (size_t)from * bytes, bytes);
}

size_t cpu_page_bytes(const nn_exec *base, int group) { return ((const cpu_exec *)base)->page_bytes[group]; }

void cpu_page_read(const nn_exec *base, int group, int32_t page, void *out) {
    const cpu_exec *x = (const cpu_exec *)base;
    if (x->page_bytes[group] == 0) return;
    memcpy(out, x->pages[group] + (size_t)page * x->page_bytes[group], x->page_bytes[group]);
}

void cpu_page_write(nn_exec *base, int group, int32_t page, const void *in) {
    cpu_exec *x = (cpu_exec *)base;
    if (x->page_bytes[group] == 0) return;
    memcpy(x->pages[group] + (size_t)page * x->page_bytes[group], in, x->page_bytes[group]);
}

size_t cpu_slot_bytes(const nn_exec *base) {
    const cpu_exec *x = (const cpu_exec *)base;
    size_t          floats = 0;
    for (int i = 0; i < base->model->dims->n_layer; i++) floats += x->layers[i].fixed_floats;
    return floats * sizeof(float);
}

void cpu_slot_read(const nn_exec *base, int32_t slot, void *out) {
    const cpu_exec *x = (const cpu_exec *)base;
    uint8_t        *to = out;
    for (int i = 0; i < base->model->dims->n_layer; i++) {
        const cpu_layer *y = &x->layers[i];
        size_t           bytes = y->fixed_floats * sizeof(float);
        if (bytes) memcpy(to, y->fixed + (size_t)slot * y->fixed_floats, bytes);
        to += bytes;
    }
}

void cpu_slot_write(nn_exec *base, int32_t slot, const void *in) {
    cpu_exec      *x = (cpu_exec *)base;
    const uint8_t *from = in;
    for (int i = 0; i < base->model->dims->n_layer; i++) {
        cpu_layer *y = &x->layers[i];
        size_t     bytes = y->fixed_floats * sizeof(float);
        if (bytes) memcpy(y->fixed + (size_t)slot * y->fixed_floats, from, bytes);
        from += bytes;
    }
}
