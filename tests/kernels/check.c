/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_SHOWN = 20, EXIT_SKIPPED = 77, CANARY = 0xa5 };

bool check_begin(check *c, int argc, char **argv) {
    char names[128];
    *c = (check){ .cpu = cpu_detect(), .rng = 1 };
    for (int i = 1; i < argc; i++) {
        unsigned mask;
        if (strcmp(argv[i], "--quick") == 0) {
            c->quick = true;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            c->rng = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--cpu") == 0 && i + 1 < argc && cpu_parse(argv[i + 1], &mask)) {
            i++;
            if (strcmp(argv[i], "all") != 0 && argv[i][0] != '-' && (mask & ~c->cpu)) {
                printf("skipped: this CPU has no %s\n", argv[i]);
                c->skipped = true;
                return false;
            }
            c->cpu = cpu_close(c->cpu & mask);
        } else {
            fprintf(stderr, "usage: %s [--cpu MASK] [--quick] [--seed N]\n", argv[0]);
            c->n_failed = 1;
            return false;
        }
    }
    cpu_names(c->cpu, names, sizeof names);
    printf("%s: %s\n", argv[0], names);
    return true;
}

int check_end(check *c) {
    if (c->skipped) return EXIT_SKIPPED;
    printf("%ld checks, %ld failed\n", c->n_checks, c->n_failed);
    return c->n_failed || c->n_checks == 0 ? 1 : 0;
}

bool check_that(check *c, bool ok, const char *file, int line, const char *fmt, ...) {
    c->n_checks++;
    if (ok) return true;
    if (c->n_failed++ < MAX_SHOWN) {
        va_list ap;
        va_start(ap, fmt);
        printf("%s:%d: ", file, line);
        vprintf(fmt, ap);
        printf("\n");
        va_end(ap);
    }
    return false;
}

uint64_t check_u64(check *c) {
    uint64_t z = (c->rng += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int check_int(check *c, int low, int high) { return low + (int)(check_u64(c) % (uint64_t)(high - low + 1)); }

float check_normal(check *c) {
    double u = ((double)(check_u64(c) >> 11) + 1) / 9007199254740993.0,
           v = (double)(check_u64(c) >> 11) / 9007199254740992.0;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

void check_fill_normal(check *c, float *dst, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) dst[i] = scale * check_normal(c);
}

void check_fill_bytes(check *c, void *dst, size_t bytes) {
    uint8_t *p = dst;
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)check_u64(c);
}

check_guard check_guard_alloc(size_t bytes, size_t slack) {
    size_t      page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + slack + page - 1) / page * page;
    check_guard g = { .bytes = bytes, .map_bytes = inner + 2 * page };
    if (inner == 0) inner = page, g.map_bytes += page;
    g.base = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.base == MAP_FAILED || mprotect(g.base + page, inner, PROT_READ | PROT_WRITE) != 0) {
        perror("check_guard_alloc");
        exit(1);
    }
    memset(g.base + page, CANARY, inner);
    g.data = g.base + page + inner - bytes - slack;
    return g;
}

bool check_guard_intact(const check_guard *g) {
    size_t         page = (size_t)sysconf(_SC_PAGESIZE);
    const uint8_t *end = g->base + g->map_bytes - page;
    for (const uint8_t *p = g->base + page; p < end; p++) {
        if (p == g->data) p += g->bytes;
        if (p < end && *p != CANARY) return false;
    }
    return true;
}

bool check_guard_free(check_guard *g) {
    bool ok = check_guard_intact(g);
    munmap(g->base, g->map_bytes);
    *g = (check_guard){ 0 };
    return ok;
}
