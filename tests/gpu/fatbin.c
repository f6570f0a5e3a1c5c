/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fatbin.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#define WRAPPER_MAGIC 0x466243b1u
#define BINARY_MAGIC 0xba55ed50u

enum { KIND_PTX = 1, BINARY_HEADER = 16, ENTRY_HEADER = 48, COMPRESSED = 0x2000 | 0x8000, TARGET_WITHIN = 512 };

typedef struct wrapper_head {
    uint32_t       magic, version;
    const uint8_t *data;
} wrapper_head;

static uint16_t u16_at(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t u32_at(const uint8_t *p) { return u16_at(p) | (uint32_t)u16_at(p + 2) << 16; }
static uint64_t u64_at(const uint8_t *p) { return u32_at(p) | (uint64_t)u32_at(p + 4) << 32; }

/* Reads ".target sm_90a", which stands near the beginning. */
static int read_target(fatbin_text *t, err *e) {
    static const char word[] = ".target sm_";
    const size_t      near = t->bytes < TARGET_WITHIN ? t->bytes : TARGET_WITHIN;
    const char       *p = memmem(t->at, near, word, sizeof word - 1), *end = t->at + near;
    if (!p) return err_set(e, ERR_FORMAT, "fat binary: a PTX text without a .target");
    t->arch = 0;
    for (p += sizeof word - 1; p < end && isdigit((unsigned char)*p) && t->arch < 1000; p++)
        t->arch = t->arch * 10 + *p - '0';
    t->own = p < end && isalpha((unsigned char)*p);
    return 0;
}

static bool better(const fatbin_text *a, const fatbin_text *than, int arch) {
    if (a->own ? a->arch != arch : a->arch > arch) return false;
    return !than->at || a->arch > than->arch || (a->arch == than->arch && a->own);
}

int fatbin_find(fatbin_text *out, const void *wrapper, int arch, err *e) {
    wrapper_head w;
    bool         compressed = false;
    *out = (fatbin_text){ 0 };
    memcpy(&w, wrapper, sizeof w);
    if (w.magic != WRAPPER_MAGIC) return err_set(e, ERR_FORMAT, "fat binary: the wrapper begins with %08x", w.magic);
    if (!w.data || u32_at(w.data) != BINARY_MAGIC) return err_set(e, ERR_FORMAT, "fat binary: not one");
    const uint8_t *p = w.data + u16_at(w.data + 6);
    uint64_t       left = u64_at(w.data + 8);
    if (u16_at(w.data + 6) < BINARY_HEADER) return err_set(e, ERR_FORMAT, "fat binary: a header that is too short");
    while (left > 0) {
        if (left < ENTRY_HEADER) return err_set(e, ERR_FORMAT, "fat binary: %d bytes behind the last entry", (int)left);
        const uint64_t head = u32_at(p + 4), bytes = u64_at(p + 8);
        if (head < ENTRY_HEADER || head > left || bytes > left - head)
            return err_set(e, ERR_FORMAT, "fat binary: an entry lies beyond the end");
        fatbin_text t = { .at = (const char *)p + head, .bytes = strnlen((const char *)p + head, bytes) };
        const bool  packed = u32_at(p + 16) != 0 || (u64_at(p + 40) & COMPRESSED) != 0;
        compressed = compressed || (packed && u16_at(p) == KIND_PTX);
        if (u16_at(p) == KIND_PTX && !packed) {
            int rc = read_target(&t, e);
            if (rc < 0) return rc;
            if (better(&t, out, arch)) *out = t;
        }
        p += head + bytes;
        left -= head + bytes;
    }
    if (out->at) return 0;
    return err_set(e, ERR_NOTFOUND, "fat binary: no PTX that a chip of %d.%d can run%s", arch / 10, arch % 10,
                   compressed ? "; what is compressed cannot be read (nvcc --no-compress)" : "");
}
