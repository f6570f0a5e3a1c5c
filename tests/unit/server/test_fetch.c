/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses are public, and what of a picture's address is refused before anything is connected to. */
#include "unit/support/support.h"

#include "server/fetch.h"
#include "server/http/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static address read_address(const char *text) {
    struct sockaddr_in  four = { .sin_family = AF_INET };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
    address             a;
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1) {
        assert_true(address_of(&a, (const struct sockaddr *)&four));
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
        assert_true(address_of(&a, (const struct sockaddr *)&six));
    }
    return a;
}

static void test_public(void **state) {
    static const char *const yes[] = { "1.1.1.1",         "8.8.8.8",        "9.255.255.255",   "11.0.0.0",
                                       "100.63.255.255",  "100.128.0.0",    "126.255.255.255", "128.0.0.0",
                                       "169.253.255.255", "172.15.255.255", "172.32.0.0",      "192.167.255.255",
                                       "192.169.0.0",     "198.17.255.255", "198.20.0.0",      "223.255.255.255",
                                       "2606:4700::1111", "2a00:1450::1",   "::ffff:8.8.8.8",  "64:ff9b::808:808",
                                       "2001:4860::8888", "2001:200::1",    "3fff:1000::1" };
    static const char *const no[] = { "0.0.0.0",
                                      "0.1.2.3",
                                      "10.0.0.1",
                                      "10.255.255.255",
                                      "100.64.0.1",
                                      "100.127.255.255",
                                      "127.0.0.1",
                                      "127.255.255.255",
                                      "169.254.169.254",
                                      "172.16.0.1",
                                      "172.31.255.255",
                                      "192.0.0.1",
                                      "192.0.2.1",
                                      "192.88.99.1",
                                      "192.168.1.1",
                                      "198.18.0.1",
                                      "198.19.255.255",
                                      "198.51.100.7",
                                      "203.0.113.7",
                                      "224.0.0.1",
                                      "239.255.255.255",
                                      "240.0.0.1",
                                      "255.255.255.255",
                                      "::",
                                      "::1",
                                      "::ffff:127.0.0.1",
                                      "::ffff:10.0.0.1",
                                      "::ffff:169.254.169.254",
                                      "::127.0.0.1",
                                      "64:ff9b::7f00:1",
                                      "64:ff9b::a00:1",
                                      "64:ff9b:1::1",
                                      "100::1",
                                      "2001::1",
                                      "2001:1ff::1",
                                      "2001:db8::1",
                                      "2002:7f00:1::1",
                                      "3fff::1",
                                      "fc00::1",
                                      "fd12:3456::1",
                                      "fe80::1",
                                      "febf::1",
                                      "fec0::1",
                                      "ff02::1",
                                      "4000::1" };
    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        address a = read_address(yes[i]);
        if (!address_is_public(&a)) fail_msg("%s is public", yes[i]);
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        address a = read_address(no[i]);
        if (address_is_public(&a)) fail_msg("%s is not public", no[i]);
    }
}

static void test_families(void **state) {
    struct sockaddr other = { .sa_family = AF_UNIX };
    address         a;
    (void)state;
    assert_false(address_of(&a, &other));
}

static void test_ranges(void **state) {
    static const struct {
        const char *range, *address;
        bool        within;
    } rows[] = {
        { "10.0.0.0/8", "10.9.8.7", true },
        { "10.0.0.0/8", "11.0.0.1", false },
        { "10.0.0.0/8", "::ffff:10.1.1.1", true },
        { "127.0.0.1", "127.0.0.1", true },
        { "127.0.0.1", "127.0.0.2", false },
        { "192.168.4.0/22", "192.168.7.255", true },
        { "192.168.4.0/22", "192.168.8.0", false },
        { "0.0.0.0/0", "8.8.8.8", true },
        { "0.0.0.0/0", "2606:4700::1", false },
        { "fd00::/8", "fdff::1", true },
        { "fd00::/8", "fc00::1", false },
        { "::1", "::1", true },
        { "::/0", "10.0.0.1", true },
    };
    static const char *const wrong[] = { "",       "/8",          "ten",  "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x",
                                         "::/129", "10.0.0.0/-1", "1.2.3" };
    address_range            r;
    err                      e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        address a = read_address(rows[i].address);
        assert_int_equal(address_range_read(&r, rows[i].range, &e), 0);
        if (address_is_within(&a, &r) != rows[i].within) fail_msg("%s in %s", rows[i].address, rows[i].range);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (address_range_read(&r, wrong[i], &e) != ERR_ARG) fail_msg("'%s' was read", wrong[i]);
    }
}

/* Nothing listens at port 1: whatever is let through cannot connect. */
static void test_refused(void **state) {
    static const char *const hosts[] = { "pictures.example", "*.cdn.example", "localhost:1", "127.0.0.1:1", "[::1]:1" };
    static const struct {
        const char *url, *says;
    } rows[] = {
        { "http://pictures.example/a.png", "not fetched by http" },
        { "ftp://pictures.example/a.png", "not fetched by ftp" },
        { "file:///etc/passwd", "cannot be read" },
        { "pictures.example/a.png", "cannot be read" },
        { "https://", "cannot be read" },
        { "https://user:secret@pictures.example/", "cannot be read" },
        { "https://pictures.example@evil.example/", "cannot be read" },
        { "https://pictures.example\r\nHost: x/", "cannot be read" },
        { "https://evil.example/pictures.example", "'evil.example', port 443" },
        { "https://pictures.example.evil.example/", "not in security.image_hosts" },
        { "https://pictures.example:8443/", "port 8443" },
        { "https://cdn.example/", "not in security.image_hosts" },
        { "https://evilcdn.example/", "not in security.image_hosts" },
        { "https://localhost/", "port 443" },
        { "https://localhost:1/", "not public" },
        { "https://LOCALHOST:1/", "not public" },
        { "https://127.0.0.1:1/", "not public" },
        { "https://0x7f000001:1/", "not public" },
        { "https://2130706433:1/", "not public" },
        { "https://[::1]:1/", "not public" },
    };
    fetch_rules r = { .hosts = hosts, .n_hosts = 5 };
    str         out;
    err         e;
    (void)state;
    str_init(&out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&e, 0, sizeof e);
        assert_true(fetch_file(&r, view_of(rows[i].url), 1000, &out, &e) < 0);
        if (!strstr(e.msg, rows[i].says)) fail_msg("%s: %s", rows[i].url, e.msg);
        assert_int_equal(out.len, 0);
    }
    const char *const networks[] = { "127.0.0.0/8", "::1" };
    r.networks = networks;
    r.n_networks = 2;
    assert_true(fetch_file(&r, view_of("https://127.0.0.1:1/"), 1000, &out, &e) < 0);
    assert_non_null(strstr(e.msg, "cannot be fetched"));
    str_deinit(&out);
}

static void test_rules(void **state) {
    const char *const good[] = { "a.example", "*.b.example", "c.example:8443", "[::1]:1" }, *const nets[] = {
        "10.0.0.0/8"
    };
    fetch_rules r = { good, 4, nets, 1, NULL };
    err         e = { 0 };
    (void)state;
    assert_int_equal(fetch_rules_check(&r, &e), 0);
    static const char *const wrong[] = { "*", "", "https://a.example", "u@a.example", "a b" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fetch_rules one = { &wrong[i], 1, NULL, 0, NULL };
        assert_int_equal(fetch_rules_check(&one, &e), ERR_ARG);
        assert_non_null(strstr(e.msg, "security.image_hosts"));
    }
    const char *const bad[] = { "ten/8" };
    r.networks = bad;
    assert_int_equal(fetch_rules_check(&r, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "security.image_networks"));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_public), cmocka_unit_test(test_families),
                                        cmocka_unit_test(test_ranges), cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_rules) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
