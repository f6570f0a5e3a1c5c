/* SPDX-License-Identifier: Apache-2.0 */
/* The checker's own tools: guards notice overwrites, and the kernel table is complete under the mask in use. */
#include "kernels/check.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static void check_guards(check *c) {
    for (size_t bytes = 0; bytes < 70; bytes += 3) {
        check_guard g = check_guard_alloc(bytes, bytes % 2 ? 64 : 0);
        memset(g.data, 1, bytes);
        CHECK(c, check_guard_intact(&g), "untouched guard of %zu bytes", bytes);
        uint8_t *touched = bytes % 2 ? g.data + bytes : g.data - 1;
        *touched = 0;
        CHECK(c, !check_guard_free(&g), "overwritten guard of %zu bytes", bytes);
    }
}

static void visit(void *ctx, const char *slot, const char *set) {
    check *c = ctx;
    CHECK(c, set != NULL, "slot %s is empty", slot);
    if (c->cpu == 0) CHECK(c, set && strcmp(set, "scalar") == 0, "slot %s without instruction sets: %s", slot, set);
}

int main(int argc, char **argv) {
    check   c;
    kernels k;
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    check_guards(&c);
    kernels_init(&k, c.cpu);
    CHECK(&c, k.cpu == c.cpu, "mask %x became %x", c.cpu, k.cpu);
    kernels_list(&k, visit, &c);
    return check_end(&c);
}
