/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the worker protocol against the structs they describe: every byte of a struct that is not padding is in
 * exactly one field, and whatever is filled in by the tables arrives.
 */
#include "unit/support/support.h"

#include "host/wire_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __has_builtin
#define __has_builtin(x) 0
#endif

enum { MAX_BYTES = 4096, MAX_TABLES = 64 };

static const wire_table *const messages[] = {
    &wire_table_request, &wire_table_event,     &wire_table_open,     &wire_table_need,
    &wire_table_info,    &wire_table_text_call, &wire_table_ids_call, &wire_table_result,
    &wire_table_ping,    &wire_table_pong,      &wire_table_loading,  &wire_table_err,
};
enum { N_MESSAGES = sizeof messages / sizeof *messages };

/* --- what a struct has --- */

/* 0xff where a struct keeps something, 0 where the compiler left a hole. */
typedef struct shape {
    const char *name;
    size_t      bytes;
    void (*fill)(unsigned char *out);
} shape;

/* gcc 12 misplaces a hole that comes behind an array of structs; no struct here has one. */
#if __has_builtin(__builtin_clear_padding)
#define HOLES(p) __builtin_clear_padding(p)
enum { HOLES_KNOWN = 1 };
#else
#define HOLES(p) (void)(p)
enum { HOLES_KNOWN = 0 }; /* gaps of less than a word pass */
#endif

#define SHAPE_OF(id, T)                                                                                                \
    static void shape_##id(unsigned char *out) {                                                                       \
        T x;                                                                                                           \
        memset((void *)&x, 0xff, sizeof x);                                                                            \
        HOLES(&x);                                                                                                     \
        memcpy(out, (const void *)&x, sizeof x);                                                                       \
    }

typedef const char *cstr;

typedef struct careless {
    int  a;
    bool b, forgotten; /* where only padding was */
    long c;
} careless;

SHAPE_OF(request, runtime_request)
SHAPE_OF(event, runtime_event)
SHAPE_OF(open, wire_open)
SHAPE_OF(need, need)
SHAPE_OF(info, runtime_info)
SHAPE_OF(text_call, wire_text_call)
SHAPE_OF(ids_call, wire_ids_call)
SHAPE_OF(result, wire_result)
SHAPE_OF(pong, wire_pong)
SHAPE_OF(err, err)
SHAPE_OF(bias, sampling_bias)
SHAPE_OF(stage, sampling_stage)
SHAPE_OF(top, runtime_top)
SHAPE_OF(device, device_bytes)
SHAPE_OF(lora, runtime_lora)
SHAPE_OF(settings, runtime_settings)
SHAPE_OF(int, int)
SHAPE_OF(int32, int32_t)
SHAPE_OF(float, float)
SHAPE_OF(view, view)
SHAPE_OF(cstr, cstr)
SHAPE_OF(careless, careless)

static const shape shapes[] = {
    { "runtime_request", sizeof(runtime_request), shape_request },
    { "runtime_event", sizeof(runtime_event), shape_event },
    { "wire_open", sizeof(wire_open), shape_open },
    { "need", sizeof(need), shape_need },
    { "runtime_info", sizeof(runtime_info), shape_info },
    { "wire_text_call", sizeof(wire_text_call), shape_text_call },
    { "wire_ids_call", sizeof(wire_ids_call), shape_ids_call },
    { "wire_result", sizeof(wire_result), shape_result },
    { "wire_pong", sizeof(wire_pong), shape_pong },
    { "err", sizeof(err), shape_err },
    { "sampling_bias", sizeof(sampling_bias), shape_bias },
    { "sampling_stage", sizeof(sampling_stage), shape_stage },
    { "runtime_top", sizeof(runtime_top), shape_top },
    { "device_bytes", sizeof(device_bytes), shape_device },
    { "runtime_lora", sizeof(runtime_lora), shape_lora },
    { "runtime_settings", sizeof(runtime_settings), shape_settings },
    { "int", sizeof(int), shape_int },
    { "int32_t", sizeof(int32_t), shape_int32 },
    { "float", sizeof(float), shape_float },
    { "view", sizeof(view), shape_view },
    { "const char *", sizeof(cstr), shape_cstr },
    { "careless", sizeof(careless), shape_careless },
};

/* --- what the tables say --- */

/* Marks the bytes of a table's fields; where one is marked twice, *twice is its place. Cases share fields. */
static void mark(const wire_table *t, size_t base, unsigned char *marks, unsigned char value, long *twice) {
    for (uint32_t i = 0; i < t->n_fields; i++) {
        const wire_field *f = &t->fields[i];
        if (f->kind == WIRE_K_STRUCT) {
            mark(f->of, base + f->offset, marks, value, twice);
            continue;
        }
        if (f->kind == WIRE_K_CASES) {
            for (int64_t k = 0; k < f->max; k++) mark(&f->of[k], base, marks, (unsigned char)(k + 2), twice);
            continue;
        }
        for (size_t k = 0; k < f->bytes; k++) {
            if (marks[base + f->offset + k] == value) *twice = (long)(base + f->offset + k);
            marks[base + f->offset + k] = value;
        }
        for (size_t k = 0; k < f->count_bytes; k++) marks[base + f->count_at + k] = value;
    }
}

/* -1: the table covers the struct. Otherwise the first byte that is in no field, or in two. */
static long first_uncovered(const wire_table *t) {
    unsigned char real[MAX_BYTES] = { 0 }, marks[MAX_BYTES] = { 0 };
    const shape  *s = NULL;
    long          twice = -1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, t->name) == 0) s = &shapes[i];
    }
    if (!s) fail_msg("%s: this test does not know the struct; add a SHAPE_OF", t->name);
    assert_int_equal(s->bytes, t->bytes);
    assert_true(s->bytes <= MAX_BYTES);
    s->fill(real);
    mark(t, 0, marks, 1, &twice);
    for (size_t i = 0; i < s->bytes; i++) {
        size_t gap = 0;
        while (!HOLES_KNOWN && i + gap < s->bytes && !marks[i + gap]) gap++;
        if (real[i] && !marks[i] && (HOLES_KNOWN || gap >= sizeof(void *))) return (long)i;
        i += gap;
    }
    return twice;
}

/* All tables that messages are made of, items and what pointers lead to included. */
static void collect(const wire_table *t, const wire_table **list, size_t *n, bool whole) {
    for (size_t i = 0; i < *n; i++) {
        if (list[i] == t) return;
    }
    assert_true(*n < MAX_TABLES);
    if (whole) list[(*n)++] = t;
    for (uint32_t i = 0; i < t->n_fields; i++) {
        const wire_field *f = &t->fields[i];
        if (f->kind == WIRE_K_STRUCT) collect(f->of, list, n, false); /* part of the struct around it */
        if (f->kind == WIRE_K_LIST || f->kind == WIRE_K_ARRAY || f->kind == WIRE_K_POINTER)
            collect(f->of, list, n, true);
        for (int64_t k = 0; f->kind == WIRE_K_CASES && k < f->max; k++) collect(&f->of[k], list, n, false);
    }
}

static size_t all_tables(const wire_table **list) {
    size_t n = 0;
    for (size_t i = 0; i < N_MESSAGES; i++) collect(messages[i], list, &n, true);
    return n;
}

static void test_covered(void **state) {
    const wire_table *list[MAX_TABLES];
    size_t            n = all_tables(list);
    (void)state;
    if (!HOLES_KNOWN) printf("this compiler does not tell padding: a member in its place would pass\n");
    for (size_t i = 0; i < n; i++) {
        long at = first_uncovered(list[i]);
        if (at >= 0) fail_msg("%s: byte %ld is not in exactly one field of its table", list[i]->name, at);
    }
}

/* A member that nobody listed is noticed, even where only padding was before. */
static void test_forgotten(void **state) {
    static const wire_field complete[] = {
        WIRE_ANY_INT(careless, a, "a"),
        WIRE_BOOL(careless, b, "b"),
        WIRE_UNSENT(careless, forgotten),
        WIRE_UNSENT(careless, c),
    };
    const wire_field two[] = { complete[0], complete[0], complete[1], complete[2], complete[3] };
    wire_table       t = WIRE_TABLE(careless, complete);
    (void)state;
    assert_int_equal(first_uncovered(&t), -1);
    t.n_fields = 3;
    assert_true(first_uncovered(&t) >= 0);
    wire_field one_less[] = { complete[0], complete[1], complete[3] };
    t = (wire_table)WIRE_TABLE(careless, one_less);
    assert_int_equal(first_uncovered(&t), HOLES_KNOWN ? (long)offsetof(careless, forgotten) : -1);
    t = (wire_table)WIRE_TABLE(careless, two);
    assert_true(first_uncovered(&t) >= 0);
}

static size_t least_bytes(const wire_table *t) {
    size_t sum = 0;
    for (uint32_t i = 0; i < t->n_fields; i++) {
        const wire_field *f = &t->fields[i];
        switch ((wire_kind)f->kind) {
        case WIRE_K_BOOL: sum += 1; break;
        case WIRE_K_I64:
        case WIRE_K_U64:
        case WIRE_K_F64: sum += 8; break;
        case WIRE_K_CSTR: sum += f->flags & WIRE_NULLABLE ? 1 : 4; break;
        case WIRE_K_STRUCT: sum += least_bytes(f->of); break;
        case WIRE_K_POINTER: sum += f->flags & WIRE_NULLABLE ? 1 : least_bytes(f->of); break;
        case WIRE_K_CASES:
        case WIRE_K_UNSENT: break;
        default: sum += 4; break;
        }
    }
    return sum;
}

static bool is_plain(const wire_table *t) {
    size_t sum = 0;
    for (uint32_t i = 0; i < t->n_fields; i++) {
        if (t->fields[i].kind < WIRE_K_I32 || t->fields[i].kind > WIRE_K_F64 || t->fields[i].offset != sum)
            return false;
        sum += t->fields[i].bytes;
    }
    return sum == t->bytes;
}

/* What rows promise about themselves is true. */
static void check_rows(const wire_table *t) {
    for (uint32_t i = 0; i < t->n_fields; i++) {
        const wire_field *f = &t->fields[i];
        bool              counted = f->kind == WIRE_K_LIST || f->kind == WIRE_K_ARRAY || f->kind == WIRE_K_BLOBS;
        assert_true(f->offset + f->bytes <= t->bytes);
        if (counted) assert_true(f->count_bytes == sizeof(int) || f->count_bytes == sizeof(size_t));
        if (counted) assert_true(f->max > 0 && f->max <= INT32_MAX);
        if (f->kind >= WIRE_K_VIEW && f->kind <= WIRE_K_CHARS) assert_true(f->max > 0 && f->max <= UINT32_MAX);
        if (f->kind == WIRE_K_BLOBS) assert_true(f->sum_bytes > 0);
        if (f->kind == WIRE_K_STRUCT) assert_int_equal(f->of->bytes, f->bytes);
        if (f->kind == WIRE_K_POINTER || f->kind == WIRE_K_LIST || f->kind == WIRE_K_ARRAY)
            assert_int_equal(f->of->bytes, f->item_bytes);
        if (f->kind == WIRE_K_LIST || f->kind == WIRE_K_ARRAY) {
            assert_int_equal(f->of->least_bytes, least_bytes(f->of));
            assert_true(f->of->least_bytes > 0);
            assert_int_equal(f->of->is_plain, is_plain(f->of));
        }
        if (f->flags & WIRE_BOUNDED) assert_true(f->min < f->max);
        if (f->kind == WIRE_K_STRUCT) check_rows(f->of);
        if (f->kind != WIRE_K_CASES) continue;
        assert_int_equal(i, t->n_fields - 1);
        bool chosen = false; /* by an enumeration before it that has as many values */
        for (uint32_t k = 0; k < i; k++)
            chosen = chosen || (t->fields[k].offset == f->count_at && t->fields[k].max == f->max - 1);
        assert_true(chosen);
        for (int64_t k = 0; k < f->max; k++) check_rows(&f->of[k]);
    }
}

static void test_rows(void **state) {
    const wire_table *list[MAX_TABLES];
    size_t            n = all_tables(list);
    (void)state;
    for (size_t i = 0; i < n; i++) check_rows(list[i]);
}

/* --- there and back --- */

static arena    mem;
static uint64_t counter; /* every value is another one */
static int      turn;    /* bools differ in one of the turns */

static void *room(size_t n, size_t bytes) {
    void *p = arena_calloc(&mem, n + 1, bytes);
    assert_non_null(p);
    return p;
}

static char *some_text(size_t most) {
    char *text = room(32, 1);
    int   n = snprintf(text, 32, "t%llu", (unsigned long long)++counter);
    assert_true(n > 0 && (size_t)n <= most);
    return text;
}

static void put_count(const wire_field *f, char *base, size_t n) {
    int small = (int)n;
    if (f->count_bytes == sizeof n)
        memcpy(base + f->count_at, &n, sizeof n);
    else
        memcpy(base + f->count_at, &small, sizeof small);
}

static size_t count_of(const wire_field *f, const char *base) {
    size_t n = 0;
    memcpy(&n, base + f->count_at, f->count_bytes); /* little endian, and never negative here */
    return n;
}

static void fill_number(const wire_field *f, char *p) {
    uint64_t span = (uint64_t)f->max - (uint64_t)f->min, x = ++counter;
    int64_t  in = f->min + (int64_t)(span == UINT64_MAX ? x : x % (span + 1));
    if (!(f->flags & WIRE_BOUNDED)) in = (int64_t)(x << 8 | 0x80);
    float  narrow = f->flags & WIRE_BOUNDED ? 0.25f : (float)x + 0.5f;
    double wide = (double)x + 0.25;
    if (f->kind == WIRE_K_F32)
        memcpy(p, &narrow, 4);
    else if (f->kind == WIRE_K_F64)
        memcpy(p, &wide, 8);
    else
        memcpy(p, &in, f->bytes);
}

static void fill(const wire_table *t, char *base, int which);

static void fill_items(const wire_field *f, char *base) {
    size_t n = f->kind == WIRE_K_ARRAY && f->max < 3 ? (size_t)f->max : 3;
    char  *items = f->kind == WIRE_K_ARRAY ? base + f->offset : room(n, f->item_bytes);
    for (size_t i = 0; i < n; i++) {
        view v = view_of(some_text(64));
        if (f->kind == WIRE_K_BLOBS)
            memcpy(items + i * sizeof v, &v, sizeof v);
        else
            fill(f->of, items + i * f->of->bytes, 0);
    }
    if (f->kind != WIRE_K_ARRAY) memcpy(base + f->offset, &items, sizeof items);
    put_count(f, base, n);
}

static void fill(const wire_table *t, char *base, int which) {
    for (uint32_t i = 0; i < t->n_fields; i++) {
        const wire_field *f = &t->fields[i];
        char             *p = base + f->offset;
        const char       *text;
        view              v;
        switch ((wire_kind)f->kind) {
        case WIRE_K_BOOL: *p = (char)(++counter >> turn & 1); break;
        case WIRE_K_VIEW:
            v = view_of(some_text((size_t)f->max));
            memcpy(p, &v, sizeof v);
            break;
        case WIRE_K_CSTR:
            text = (f->flags & WIRE_NULLABLE) && turn % 2 ? NULL : some_text((size_t)f->max);
            memcpy(p, &text, sizeof text);
            break;
        case WIRE_K_CHARS: snprintf(p, f->bytes, "%s", some_text((size_t)f->max)); break;
        case WIRE_K_STRUCT: fill(f->of, p, 0); break;
        case WIRE_K_POINTER:
            text = (f->flags & WIRE_NULLABLE) && turn % 2 ? NULL : room(1, f->of->bytes);
            if (text) fill(f->of, (char *)(uintptr_t)text, 0);
            memcpy(p, &text, sizeof text);
            break;
        case WIRE_K_LIST:
        case WIRE_K_ARRAY:
        case WIRE_K_BLOBS: fill_items(f, base); break;
        case WIRE_K_CASES:
            memcpy(base + f->count_at, &which, sizeof which);
            fill(&f->of[which], base, 0);
            break;
        case WIRE_K_UNSENT: break;
        default: fill_number(f, p); break;
        }
    }
}

static const char *pointer_at(const char *p) {
    const char *x;
    memcpy(&x, p, sizeof x);
    return x;
}

static void compare(const wire_table *t, const char *a, const char *b);

static void compare_items(const wire_field *f, const char *a, const char *b) {
    const char *x = a + f->offset, *y = b + f->offset;
    size_t      n = count_of(f, a);
    assert_int_equal(n, count_of(f, b));
    if (f->kind != WIRE_K_ARRAY) x = pointer_at(x);
    if (f->kind != WIRE_K_ARRAY) y = pointer_at(y);
    const wire_table *of = f->kind == WIRE_K_BLOBS ? &wire_item_text : f->of;
    for (size_t i = 0; i < n; i++) compare(of, x + i * of->bytes, y + i * of->bytes);
}

static void compare_texts(const wire_field *f, const char *x, const char *y) {
    view v, w;
    if (f->kind == WIRE_K_VIEW) {
        memcpy(&v, x, sizeof v);
        memcpy(&w, y, sizeof w);
        assert_int_equal(v.len, w.len);
        assert_memory_equal(v.data, w.data, v.len);
        return;
    }
    if (f->kind == WIRE_K_CSTR) {
        x = pointer_at(x);
        y = pointer_at(y);
        assert_int_equal(x == NULL, y == NULL);
    }
    if (x && strcmp(x, y) != 0) fail_msg("%s: '%s', not '%s'", f->name, y, x);
}

static unsigned char untouched = 0xa5; /* what a field that is not sent holds; made anew elsewhere: 0 */

static void compare_elsewhere(const wire_field *f, const char *x, const char *y) {
    assert_int_equal(x == NULL, y == NULL);
    untouched = 0;
    if (x) compare(f->of, x, y);
    untouched = 0xa5;
}

static void compare(const wire_table *t, const char *a, const char *b) {
    for (uint32_t i = 0; i < t->n_fields; i++) {
        const wire_field *f = &t->fields[i];
        const char       *x = a + f->offset, *y = b + f->offset;
        int               which;
        switch ((wire_kind)f->kind) {
        case WIRE_K_VIEW:
        case WIRE_K_CSTR:
        case WIRE_K_CHARS: compare_texts(f, x, y); break;
        case WIRE_K_STRUCT: compare(f->of, x, y); break;
        case WIRE_K_POINTER: compare_elsewhere(f, pointer_at(x), pointer_at(y)); break;
        case WIRE_K_LIST:
        case WIRE_K_ARRAY:
        case WIRE_K_BLOBS: compare_items(f, a, b); break;
        case WIRE_K_CASES:
            memcpy(&which, a + f->count_at, sizeof which);
            compare(&f->of[which], a, b);
            break;
        case WIRE_K_UNSENT:
            for (size_t k = 0; k < f->bytes; k++) assert_int_equal((unsigned char)y[k], untouched);
            break;
        default:
            if (memcmp(x, y, f->bytes) != 0) fail_msg("%s.%s differs", t->name, f->name ? f->name : "item");
        }
    }
}

static void check_message(const wire_table *t, int which) {
    char *a = room(1, t->bytes), *b = room(1, t->bytes);
    str   out;
    err   e = { 0 };
    memset(b, 0xa5, t->bytes);
    fill(t, a, which);
    if (t == &wire_table_event && which < RUNTIME_DONE) ((runtime_event *)(void *)a)->last = false;
    str_init(&out);
    str_puts(&out, "before");
    if (wire_encode(&out, 3, t, a, &e) < 0) fail_msg("%s: %s", t->name, e.msg);
    view body = { out.data + 9, out.len - 9 };
    if (wire_decode(body, t, &mem, b, &e) < 0) fail_msg("%s: %s", t->name, e.msg);
    compare(t, a, b);
    for (size_t n = 0; n < body.len; n++) { /* cut anywhere it is an error, and the field has a name */
        char *exact = malloc(n + 1);
        memcpy(exact, body.data, n);
        assert_int_equal(wire_decode((view){ exact, n }, t, &mem, b, &e), ERR_FORMAT);
        assert_null(strstr(e.msg, "a field"));
        assert_non_null(strstr(e.msg, "is cut off"));
        free(exact);
    }
    str_deinit(&out);
}

static void test_every_field(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        const wire_field *last = &messages[i]->fields[messages[i]->n_fields - 1];
        int               n = last->kind == WIRE_K_CASES ? (int)last->max : 1;
        for (int which = 0; which < n; which++) {
            for (turn = 0; turn < 6; turn++) {
                arena_init(&mem, 0);
                check_message(messages[i], which);
                arena_deinit(&mem);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_covered),
        cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_every_field),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
