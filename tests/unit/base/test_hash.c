/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the examples of FIPS 180-4 and Python's hashlib, XXH64 against published values. */
#include "unit/support/support.h"

#include "base/sha256.h"
#include "base/xxh64.h"

#include <stdio.h>
#include <string.h>

static void hex_of(const uint8_t *d, char *out) {
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", d[i]);
}

/* Fed whole and in pieces of every size up to 70. */
static void check_sha(const void *data, size_t n, const char *want) {
    for (size_t piece = 1; piece <= 70; piece++) {
        sha256  s;
        uint8_t d[SHA256_BYTES];
        char    text[65];
        sha256_init(&s);
        for (size_t at = 0; at < n; at += piece)
            sha256_feed(&s, (const char *)data + at, n - at < piece ? n - at : piece);
        sha256_finish(&s, d);
        hex_of(d, text);
        assert_string_equal(text, want);
    }
}

static void test_sha256(void **state) {
    char ramp[1000];
    (void)state;
    for (int i = 0; i < 1000; i++) ramp[i] = (char)(i * 7 + 3);
    check_sha("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_sha("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    /* hashlib.sha256(bytes((i * 7 + 3) % 256 for i in range(n))) */
    check_sha(ramp, 55, "e7313d333c272e639f790978283f9eb392e843d0f29b7016828bb1daa4aac70b");
    check_sha(ramp, 64, "39e3d7b6b5d075d37d053ad89b24b41bef4f3c29760c84447cab3f3be1882241");
    check_sha(ramp, 1000, "1e9bc38cbf860b9ec31918b065f9b52476c549a782e0e7990bed8ce3868d2371");
}

static void test_xxh64(void **state) {
    static const char text[] = "Nobody inspects the spammish repetition";
    (void)state;
    assert_true(xxh64("", 0) == 0xEF46DB3751D8E999u);
    assert_true(xxh64("a", 1) == 0xD24EC4F1A98C6E5Bu);
    assert_true(xxh64("abc", 3) == 0x44BC2CF5AD770999u);
    assert_true(xxh64(text, sizeof text - 1) == 0xFBCEA83C8A378BF1u);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sha256), cmocka_unit_test(test_xxh64) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
