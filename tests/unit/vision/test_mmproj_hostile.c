/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmproj files of eyes and ears whose keys have values that make no sense, or whose tensors have other shapes and types than they
 * should: they are refused with a sentence, or see and hear something, and nothing worse; under sanitizers this is worth
 * more. The files are those of test_mmproj and test_hearing_kin, written again with a few changes. HEARTH_HOSTILE: see
 * hostile.h.
 */
#include "unit/support/ears_gguf.h"
#include "unit/support/eyes_gguf.h"
#include "unit/support/hostile.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "convert/gguf_writer.h"
#include "formats/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EYES HEARTH_SOURCE_DIR "/tests/golden/vision/"
#define EARS HEARTH_SOURCE_DIR "/tests/golden/hearing/"

enum { EYES_ROUNDS = 10, EARS_ROUNDS = 30, MOST_CHANGES = 3, MOST_ELEMENTS = 64 };

static const int64_t     ints[] = { 0,       -1,        1,         2,          3,         5,         7,         16,
                                    28,      56,        64,        100,        -3,        80,        1024,      768,
                                    4096,    1500,      1 << 14,   1 << 16,    1 << 20,   1 << 24,   1 << 28,   1 << 29,
                                    1 << 30, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 4294967297 };
static const double      reals[] = { 0, -1, 0.5, 1, 2, 1e-30, 1e30, 1e39, 1e300, 255, NAN, INFINITY, -INFINITY, 16 };
static const char *const projectors[] = {
    "gemma3",        "mlp",       "idefics3",   "pixtral",   "qwen2.5vl_merger", "qwen2vl_merger", "qwen3vl_merger",
    "gemma4v",       "gemma4uv",  "glm4v",      "paddleocr", "exaone4_5",        "qwen2.5o",       "internvl",
    "lightonocr",    "janus_pro", "llama4",     "lfm2",      "kimivl",           "kimik25",        "minicpmv4_6",
    "resampler",     "voxtral",   "qwen2a",     "qwen3a",    "gemma4a",          "gemma4ua",       "ultravox",
    "musicflamingo", "hunyuanvl", "hunyuanocr", "nothing"
};
static const meta_type   number_types[] = { META_U8,  META_U16, META_U32, META_I32, META_F32,
                                            META_U64, META_I64, META_F64, META_BOOL };
static const tensor_type tensor_types[] = { TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_I32 };
#define ONE_OF(list, random) ((list)[test_random(random) % (sizeof(list) / sizeof *(list))])

/* --- changes --- */

static bool is_signed(meta_type t) { return t == META_I8 || t == META_I16 || t == META_I32 || t == META_I64; }
static bool is_real(meta_type t) { return t == META_F32 || t == META_F64; }

static void take_number(meta_value *v, uint64_t *random) {
    if (is_real(v->type))
        v->u.f = ONE_OF(reals, random);
    else if (is_signed(v->type))
        v->u.i = ONE_OF(ints, random);
    else
        v->u.u = (uint64_t)ONE_OF(ints, random);
}

static void change_number(meta_value *v, uint64_t *random) {
    if (!is_real(v->type) && test_random(random) % 3 == 0) {
        v->u.i = hostile_near(v->u.i, random);
    } else {
        if (test_random(random) % 8 == 0) v->type = ONE_OF(number_types, random);
        take_number(v, random);
    }
    /* What fits into the type. */
    if (v->type == META_BOOL) v->u.u &= 1;
    if (v->type == META_U8) v->u.u &= UINT8_MAX;
    if (v->type == META_U16) v->u.u &= UINT16_MAX;
    if (v->type == META_U32) v->u.u &= UINT32_MAX;
    if (v->type == META_I32) v->u.i = (int32_t)v->u.i;
}

/* Fewer elements or more, and an element of another value. room: for MOST_ELEMENTS of eight bytes. */
static void change_array(meta_value *v, uint8_t *room, uint64_t *random) {
    size_t bytes = meta_type_bytes((int)v->elem_type), count = v->count < MOST_ELEMENTS ? v->count : MOST_ELEMENTS;
    if (!bytes) return;
    memset(room, 0, MOST_ELEMENTS * 8);
    memcpy(room, v->data, count * bytes);
    switch (test_random(random) % 3) {
    case 0: v->count = test_random(random) % (MOST_ELEMENTS / 4); break;
    case 1:
        if (bytes == 4) v->elem_type = is_real(v->elem_type) ? META_I32 : META_F32;
        break;
    default: v->count = count;
    }
    v->data = room;
    for (int n = 1 + (int)(test_random(random) % 2); n > 0 && count; n--) {
        size_t  at = test_random(random) % count * bytes;
        int64_t i = ONE_OF(ints, random);
        float   f = (float)ONE_OF(reals, random);
        if (v->elem_type == META_F32)
            memcpy(room + at, &f, sizeof f);
        else if (v->elem_type == META_BOOL)
            room[at] ^= 1;
        else
            memcpy(room + at, &i, bytes);
    }
}

static void change_value(meta_value *v, uint8_t *room, uint64_t *random) {
    if (v->type == META_STRING)
        v->u.s = view_of(ONE_OF(projectors, random));
    else if (v->type == META_ARRAY)
        change_array(v, room, random);
    else
        change_number(v, random);
}

/* Another shape, or the same bytes as another type. */
static void change_shape(model_tensor *t, uint64_t *random) {
    int     a = t->n_dims ? (int)(test_random(random) % (uint64_t)t->n_dims) : 0;
    int     b = t->n_dims ? (int)(test_random(random) % (uint64_t)t->n_dims) : 0;
    int64_t kept = t->dims[a];
    switch (test_random(random) % 8) {
    case 0:
    case 1:
        t->dims[a] = t->dims[b];
        t->dims[b] = kept;
        break;
    case 2: t->dims[a] = 1; break;
    case 3: t->dims[a] = 1 + (int64_t)(test_random(random) % (uint64_t)kept); break;
    case 4: t->dims[a] = kept * 2; break;
    case 5:
        if (t->n_dims > 1) t->dims[--t->n_dims] = 1;
        break;
    case 6:
        if (t->n_dims < GGUF_MAX_DIMS) t->dims[t->n_dims++] = 1;
        break;
    default: t->type = ONE_OF(tensor_types, random);
    }
}

static void exchange_value(const hostile_exchange *x, meta_value *v) {
    bool number = v->type != META_STRING && v->type != META_ARRAY && v->type != META_BOOL && !is_real(v->type);
    if (number && x->from && v->u.i == x->from) v->u.i = x->to;
}

/* --- files --- */

typedef struct source {
    char        *data;
    size_t       bytes;
    gguf         head;
    tensor_table tensors;
} source;

static void read_source(source *s, const char *path) {
    err e = { 0 };
    assert_int_equal(file_read(&s->data, &s->bytes, path, 16 << 20, &e), 0);
    tensor_table_init(&s->tensors);
    if (gguf_read_memory(&s->head, (const uint8_t *)s->data, s->bytes, &s->tensors, &e) < 0) fail_msg("%s", e.msg);
}

static void free_source(source *s) {
    gguf_deinit(&s->head);
    tensor_table_deinit(&s->tensors);
    free(s->data);
}

static void write_key(gguf_writer *w, const gguf_key *k, bool change, const hostile_exchange *x, uint64_t *random) {
    uint8_t    room[MOST_ELEMENTS * 8];
    meta_value v = k->value;
    err        e = { 0 };
    if (change && test_random(random) % 8 == 0) return;
    exchange_value(x, &v);
    if (change) change_value(&v, room, random);
    if (gguf_writer_set(w, k->name, &v, &e) < 0) fail_msg("%s: %s", k->name, e.msg);
}

/* What the shape has more than the file is zero; *keep is for the caller to free. Returns the bytes; 0: it is left out. */
static size_t write_tensor(gguf_writer *w, const model_tensor *from, bool change, const hostile_exchange *x,
                           void **keep, uint64_t *random) {
    model_tensor t = *from;
    err          e = { 0 };
    if (change && test_random(random) % 12 == 0) return 0;
    hostile_exchange_dims(x, &t);
    if (change) change_shape(&t, random);
    if (tensor_table_bytes(&t, &t.bytes, &e) < 0) t = *from;
    uint8_t *data = *keep = calloc(1, t.bytes ? t.bytes : 1);
    assert_non_null(data);
    memcpy(data, from->data, t.bytes < from->bytes ? t.bytes : from->bytes);
    if (change && test_random(random) % 8 == 0) memset(data, 0xFF, t.bytes); /* no numbers */
    if (gguf_writer_add(w, from->name, t.type, t.n_dims, t.dims, data, t.bytes, &e) < 0)
        fail_msg("%s: %s", from->name, e.msg);
    return t.bytes;
}

/* Without waiting for the disk, as gguf_writer_write does. */
static void write_file(gguf_writer *w, const char *path, void *const *data, const size_t *sizes, size_t n) {
    uint64_t *offsets = calloc(n + 1, sizeof *offsets), bytes;
    FILE     *f = fopen(path, "wb");
    str       head;
    err       e = { 0 };
    assert_non_null(f);
    str_init(&head);
    if (gguf_writer_head(w, &head, offsets, &bytes, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(fwrite(str_cstr(&head), 1, head.len, f), head.len);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fseek(f, (long)offsets[i], SEEK_SET), 0);
        assert_int_equal(fwrite(data[i], 1, sizes[i], f), sizes[i]);
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, (off_t)bytes), 0);
    str_deinit(&head);
    free(offsets);
}

/* The file again, with some of its keys and tensors changed. */
static void write_changed(const source *s, const char *path, hostile_exchange x, uint64_t *random) {
    size_t       changed[MOST_CHANGES], n = 1 + test_random(random) % MOST_CHANGES, n_keys = s->head.n_keys;
    size_t      *sizes = calloc(s->tensors.count + 1, sizeof *sizes), written = 0;
    void       **kept = calloc(s->tensors.count + 1, sizeof *kept);
    gguf_writer *w;
    err          e = { 0 };
    if (x.from && test_random(random) % 2) n = 0;
    for (size_t i = 0; i < n; i++) {
        bool key = test_random(random) % 3 > 0;
        changed[i] = key ? test_random(random) % n_keys : n_keys + test_random(random) % s->tensors.count;
    }
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    for (size_t i = 0; i < n_keys + s->tensors.count; i++) {
        bool change = false;
        for (size_t k = 0; k < n; k++) change = change || changed[k] == i;
        if (i < n_keys) {
            write_key(w, &s->head.keys[i], change && strcmp(s->head.keys[i].name, "general.architecture") != 0, &x,
                      random);
        } else {
            sizes[written] = write_tensor(w, &s->tensors.items[i - n_keys], change, &x, &kept[written], random);
            written += sizes[written] > 0;
        }
    }
    write_file(w, path, kept, sizes, written);
    gguf_writer_free(w);
    for (size_t i = 0; i < written; i++) free(kept[i]);
    free(kept);
    free(sizes);
}

/* --- what becomes of them --- */

typedef struct world {
    char  *path;
    pixels pictures[HOSTILE_PICTURES];
    sound  sounds[HOSTILE_SOUNDS];
    int    opened, refused;
} world;

/* inside: the file is not one beside a language model, but has a tower inside. Without a sentence where it opened. */
static bool try_file(world *x, const model_file *m, bool inside, int width, const pixels *p, err *why) {
    hostile_clock c = hostile_begin(x->path);
    model_file   *f;
    bool          opened = false;
    *why = (err){ 0 };
    if (model_file_open(&f, x->path, why) == 0) {
        err of_ears = { 0 };
        opened = hostile_see(inside ? f : m, inside ? NULL : f, width, p, why);
        if (!inside && hostile_hear(m, f, width, x->sounds, &of_ears)) opened = true;
        if (of_ears.msg[0]) *why = of_ears;
        model_file_free(f);
    }
    if (!opened && !inside) assert_true(why->msg[0]);
    hostile_end(&c);
    return opened;
}

/* The file at the path, which is well at first. */
static void change_file(world *x, const char *name, const model_file *m, bool inside, int width, int rounds,
                        uint64_t *random) {
    source      s;
    model_file *own;
    char        copy[512];
    err         e = { 0 };
    if (!try_file(x, m, inside, width, &x->pictures[0], &e)) fail_msg("%s: %s", name, e.msg);
    read_source(&s, x->path);
    snprintf(copy, sizeof copy, "%s.own", x->path);
    assert_int_equal(rename(x->path, copy), 0);
    assert_int_equal(model_file_open(&own, copy, &e), 0);
    for (int round = 0; round < rounds; round++) {
        hostile_exchange sizes = { 0 };
        if (test_random(random) % 3 == 0) sizes = hostile_exchange_take(own, random);
        write_changed(&s, x->path, sizes, random);
        if (try_file(x, m, inside, width, &x->pictures[round % HOSTILE_PICTURES], &e))
            x->opened++;
        else
            x->refused++;
    }
    model_file_free(own);
    free_source(&s);
}

static model_file *open_dir(const char *folder, const char *name) {
    char        path[512];
    model_file *m;
    err         e = { 0 };
    snprintf(path, sizeof path, "%s%s", folder, name);
    if (model_file_open(&m, path, &e) < 0) fail_msg("%s", e.msg);
    return m;
}

static void begin(world *x, char **dir) {
    *dir = test_temp_dir();
    *x = (world){ .path = path_join(*dir, "mmproj.gguf") };
    hostile_pictures(x->pictures);
    hostile_sounds(x->sounds);
}

static void end(world *x, char *dir) {
    print_message("%d opened, %d refused\n", x->opened, x->refused);
    assert_true(x->refused > 0);
    hostile_pictures_free(x->pictures);
    hostile_sounds_free(x->sounds);
    free(x->path);
    test_temp_dir_remove(dir);
}

static void test_eyes(void **state) {
    uint64_t random = 3;
    int      rounds = hostile_rounds(EYES_ROUNDS, &random);
    char    *dir;
    world    x;
    (void)state;
    begin(&x, &dir);
    for (size_t i = 0; i < eyes_gguf_count; i++) {
        model_file *m = open_dir(EYES, eyes_gguf_families[i].name);
        eyes_gguf_write(&eyes_gguf_families[i], m, x.path);
        change_file(&x, eyes_gguf_families[i].name, m, false, eyes_gguf_width(m), rounds, &random);
        model_file_free(m);
    }
    model_file *m = open_dir(EYES, "llama4");
    eyes_gguf_write_inside(m, x.path);
    change_file(&x, "llama4", m, true, eyes_gguf_width(m), rounds, &random);
    model_file_free(m);
    end(&x, dir);
}

static void test_ears(void **state) {
    const int width = EARS_GGUF_WIDTH;
    uint64_t  random = 5;
    int       rounds = hostile_rounds(EARS_ROUNDS, &random);
    char     *dir;
    world     x;
    (void)state;
    begin(&x, &dir);
    for (size_t i = 0; i <= ears_gguf_count; i++) {
        const ears_gguf *f = i < ears_gguf_count ? &ears_gguf_families[i] : &ears_gguf_ultravox;
        model_file      *m = open_dir(EARS, f->name);
        ears_gguf_write(f, m, x.path, NULL, 0);
        change_file(&x, f->name, m, false, width, rounds, &random);
        model_file_free(m);
    }
    model_file *m = open_dir(EARS, "gemma4");
    ears_gguf_write_gemma4(m, x.path, NULL, 0);
    change_file(&x, "gemma4", m, false, width, rounds, &random);
    model_file_free(m);
    m = open_dir(EARS, "gemma4_unified");
    ears_gguf_write_samples(m, x.path, 320, width);
    change_file(&x, "gemma4_unified", m, false, width, rounds, &random);
    model_file_free(m);
    end(&x, dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_eyes), cmocka_unit_test(test_ears) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
