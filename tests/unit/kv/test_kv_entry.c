/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier's files against ones that a Python script wrote from the format's description
 * (tests/golden/make_kv_entries.py), and against damage: every length and every bit of the header. */
#include "unit/support/support.h"

#include "base/file.h"
#include "kv/entry.h"

#include <stdlib.h>
#include <string.h>

static kv_identity identity(void) {
    kv_identity id = {
        .page_tokens = 16, .n_groups = 2, .k_type = 1, .v_type = 3, .page_bytes = { 96, 40 }, .state_bytes = 24
    };
    for (int i = 0; i < KV_KEY_BYTES; i++) id.model.b[i] = (uint8_t)(100 + i);
    return id;
}

static uint8_t *fixture(const char *name, size_t *bytes) {
    char *path = test_fixture_path(name), *data;
    err   e;
    if (file_read(&data, bytes, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return (uint8_t *)data;
}

/* Reads the file, and writes the same bytes again. */
static kv_entry round_trip(const char *name) {
    kv_identity id = identity();
    kv_entry    x;
    size_t      bytes;
    uint8_t    *data = fixture(name, &bytes), again[KV_ENTRY_HEADER_MAX];
    err         e;
    if (kv_entry_decode(&id, data, bytes, bytes, &x, &e) < 0) fail_msg("%s", e.msg);
    size_t head = kv_entry_header_bytes(&x);
    assert_int_equal(kv_entry_check(&x, data + head, bytes - head, &e), 0);
    kv_entry_encode(&id, &x, again);
    assert_memory_equal(again, data, head);
    x.rows = NULL; /* they lay in data */
    free(data);
    return x;
}

static kv_key key_from(int first) {
    kv_key k;
    for (int i = 0; i < KV_KEY_BYTES; i++) k.b[i] = (uint8_t)(first + i);
    return k;
}

static const kv_key none;

static void test_files(void **state) {
    kv_identity id = identity();
    (void)state;
    kv_entry first = round_trip("kv/first.hkv"), page = round_trip("kv/page.hkv"), st = round_trip("kv/state.hkv");
    kv_span  span = { first.tokens, NULL, first.n_tokens };
    kv_key   root = kv_key_root(&id, &none), of_first = kv_key_of(KV_ENTRY_PAGE, &root, &span);
    assert_true(kv_key_eq(&first.parent, &root));
    assert_true(kv_key_eq(&page.parent, &of_first) && kv_key_eq(&st.parent, &of_first));
    assert_int_equal(first.kind, KV_ENTRY_PAGE);
    assert_int_equal(first.groups, 1);
    assert_int_equal(first.payload_bytes, 96);
    assert_int_equal(page.kind, KV_ENTRY_PAGE);
    assert_int_equal(page.position, 16);
    assert_int_equal(page.n_tokens, 5);
    assert_int_equal(page.groups, 3);
    assert_int_equal(page.tokens[0], -1);
    assert_int_equal(page.tokens[2], INT32_MAX);
    assert_int_equal(page.payload_bytes, 136);
    assert_int_equal(st.kind, KV_ENTRY_STATE);
    assert_int_equal(st.n_tokens, 3);
    assert_int_equal(st.payload_bytes, 24);
    assert_true(kv_key_is_none(&first.space) && kv_key_is_none(&page.space) && kv_key_is_none(&st.space));
}

/* A page of an adapter set whose third and fourth rows were supplied. */
static void test_rows(void **state) {
    const kv_identity id = identity();
    const kv_key      space = key_from(200), third = key_from(1), fourth = key_from(17);
    kv_key            root = kv_key_root(&id, &space), base = kv_key_root(&id, &none);
    kv_entry          x;
    size_t            bytes;
    uint8_t          *data = fixture("kv/rows.hkv", &bytes);
    err               e;
    (void)state;
    (void)round_trip("kv/rows.hkv");
    assert_int_equal(kv_entry_decode(&id, data, bytes, bytes, &x, &e), 0);
    assert_true(kv_key_eq(&x.space, &space) && kv_key_eq(&x.parent, &root) && !kv_key_eq(&root, &base));
    assert_int_equal(x.n_tokens, 5);
    assert_non_null(x.rows);
    assert_true(kv_key_is_none(&x.rows[0]) && kv_key_is_none(&x.rows[1]) && kv_key_is_none(&x.rows[4]));
    assert_true(kv_key_eq(&x.rows[2], &third) && kv_key_eq(&x.rows[3], &fourth));
    /* The key covers the rows: each of them, and that there are some. Rows of plain tokens change nothing. */
    kv_key  rows[5], zero[5] = { 0 };
    kv_span plain = { x.tokens, NULL, 5 }, zeros = { x.tokens, zero, 5 }, other = { x.tokens, rows, 5 };
    kv_key  a = kv_key_of(KV_ENTRY_PAGE, &root, &plain), b = kv_key_of(KV_ENTRY_PAGE, &root, &zeros);
    assert_true(kv_key_eq(&a, &b) && !kv_key_eq(&a, &x.key));
    for (int i = 0; i < 5; i++) {
        memcpy(rows, x.rows, sizeof rows);
        rows[i].b[15] ^= 1;
        a = kv_key_of(KV_ENTRY_PAGE, &root, &other);
        assert_false(kv_key_eq(&a, &x.key));
    }
    free(data);
}

/* Fields that contradict each other under a right checksum. */
static void test_contradictions(void **state) {
    const kv_identity id = identity();
    kv_entry          x;
    size_t            bytes;
    uint8_t          *data = fixture("kv/rows.hkv", &bytes), again[KV_ENTRY_HEADER_MAX];
    kv_key            zero[5] = { 0 };
    err               e;
    (void)state;
    for (int what = 0; what < 4; what++) {
        assert_int_equal(kv_entry_decode(&id, data, bytes, bytes, &x, &e), 0);
        size_t  head = kv_entry_header_bytes(&x);
        kv_span span = { x.tokens, x.rows, x.n_tokens };
        if (what == 1) x.space.b[3] ^= 1; /* the first page of another namespace */
        if (what == 2) x.parent.b[3] ^= 1;
        if (what == 3) x.rows = span.rows = zero;
        if (what) x.key = kv_key_of(KV_ENTRY_PAGE, &x.parent, &span);
        kv_entry_encode(&id, &x, again);
        uint8_t *file = malloc(bytes);
        memcpy(file, again, head);
        memcpy(file + head, data + head, bytes - head);
        int rc = kv_entry_decode(&id, file, bytes, bytes, &x, &e);
        if (rc != (what ? ERR_FORMAT : 0)) fail_msg("%d: %d", what, rc);
        free(file);
    }
    free(data);
}

/* Entries of version 1 are told by their version alone, whatever they hold. */
static void test_version_1(void **state) {
    const kv_identity id = identity();
    kv_entry          x;
    size_t            bytes;
    uint8_t          *data = fixture("kv/version1.hkv", &bytes);
    err               e;
    (void)state;
    for (size_t n = 12; n <= bytes; n++) {
        assert_int_equal(kv_entry_decode(&id, data, n, n, &x, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.msg, "version 1"));
    }
    free(data);
}

static void check_damage(const char *name) {
    const kv_identity id = identity();
    kv_entry          x;
    size_t            bytes;
    uint8_t          *data = fixture(name, &bytes);
    err               e;
    assert_int_equal(kv_entry_decode(&id, data, bytes, bytes, &x, &e), 0);
    size_t head = kv_entry_header_bytes(&x);
    for (size_t n = 0; n < bytes; n++) { /* cut off */
        uint8_t *part = malloc(n ? n : 1);
        memcpy(part, data, n);
        int rc = kv_entry_decode(&id, part, n, n, &x, &e);
        assert_true(rc == ERR_FORMAT && e.msg[0]);
        free(part);
    }
    assert_int_equal(kv_entry_decode(&id, data, bytes, bytes + 1, &x, &e), ERR_FORMAT);
    for (size_t bit = 0; bit < 8 * bytes; bit++) { /* one bit turned over */
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int rc = kv_entry_decode(&id, data, bytes, bytes, &x, &e);
        if (bit / 8 < head)
            assert_int_equal(rc, bit / 8 >= 8 && bit / 8 < 12 ? ERR_UNSUPPORTED : ERR_FORMAT);
        else
            assert_true(rc == 0 && kv_entry_check(&x, data + head, bytes - head, &e) == ERR_FORMAT);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(data);
}

static void test_damage(void **state) {
    (void)state;
    check_damage("kv/page.hkv");
    check_damage("kv/rows.hkv");
}

/* Whatever differs between two models, types or page sizes, the other one's entries are not ours. */
static void test_identity(void **state) {
    kv_identity ids[] = { identity(), identity(), identity(), identity(), identity(), identity(), identity() };
    kv_entry    x;
    size_t      bytes;
    uint8_t    *data = fixture("kv/page.hkv", &bytes);
    err         e;
    (void)state;
    ids[1].model.b[15]++;
    ids[2].k_type++;
    ids[3].v_type--;
    ids[4].page_tokens = 32;
    ids[5].page_bytes[1] += 64;
    ids[6].state_bytes = 0;
    for (int i = 1; i < 7; i++) {
        kv_key a = kv_key_root(&ids[0], &none), b = kv_key_root(&ids[i], &none);
        assert_false(kv_key_eq(&a, &b));
        assert_int_equal(kv_entry_decode(&ids[i], data, bytes, bytes, &x, &e), ERR_UNSUPPORTED);
    }
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),     cmocka_unit_test(test_rows),   cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_version_1), cmocka_unit_test(test_damage), cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
