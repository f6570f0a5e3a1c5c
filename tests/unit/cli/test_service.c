/* SPDX-License-Identifier: Apache-2.0 */
/* What a service manager says and hears: datagrams on a real socket, sockets that are meant for us, intervals. */
#include "base/clock.h"
#include "cli/serve/service.h"
#include "unit/support/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int manager_at(const char *name) {
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(a.sun_path, name, strlen(name));
    if (name[0] == '@') a.sun_path[0] = '\0';
    assert_int_equal(
        bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))), 0);
    return fd;
}

static void assert_hears(int fd, const char *want) {
    char    text[100];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    if (!want) {
        assert_true(n < 0 && errno == EAGAIN);
        return;
    }
    assert_true(n > 0);
    text[n] = '\0';
    assert_string_equal(text, want);
}

static void test_notify(void **state) {
    char *dir = test_temp_dir(), path[600], name[60], text[100];
    (void)state;
    snprintf(path, sizeof path, "%s/n", dir);
    snprintf(name, sizeof name, "@hearth-test-%d", (int)getpid());
    int by_path = manager_at(path), by_name = manager_at(name);
    unsetenv("NOTIFY_SOCKET");
    service_notify("READY=1");
    setenv("NOTIFY_SOCKET", path, 1);
    service_notify("READY=1");
    assert_hears(by_path, "READY=1");
    setenv("NOTIFY_SOCKET", name, 1);
    service_notify("STOPPING=1");
    assert_hears(by_name, "STOPPING=1");
    /* A reload says when it began, on the clock that the manager compares with its signal. */
    long long before = clock_us(), told = 0;
    service_notify_reloading();
    ssize_t n = recv(by_name, text, sizeof text - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    assert_int_equal(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%lld", &told), 1);
    assert_true(told >= before && told <= clock_us());
    /* What is no place of a socket, and one where nobody listens. */
    char        longest[200] = "/";
    const char *others[] = { "", "relative", longest, "/nobody/listens" };
    memset(longest + 1, 'x', sizeof longest - 2);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        setenv("NOTIFY_SOCKET", others[i], 1);
        service_notify("READY=1");
    }
    assert_hears(by_path, NULL);
    assert_hears(by_name, NULL);
    unsetenv("NOTIFY_SOCKET");
    close(by_path);
    close(by_name);
    test_temp_dir_remove(dir);
}

static size_t sockets_of(const char *pid, const char *count) {
    int out[SERVICE_MAX_SOCKETS];
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", count, 1);
    size_t n = service_sockets(out);
    for (size_t i = 0; i < n; i++) assert_int_equal(out[i], 3 + (int)i);
    /* Nobody behind us takes them for its own. */
    assert_null(getenv("LISTEN_PID"));
    assert_null(getenv("LISTEN_FDS"));
    return n;
}

static void test_sockets(void **state) {
    char us[20], other[20], longer[24];
    int  out[SERVICE_MAX_SOCKETS];
    (void)state;
    snprintf(us, sizeof us, "%d", (int)getpid());
    snprintf(other, sizeof other, "%d", (int)getppid());
    snprintf(longer, sizeof longer, "%sx", us);
    assert_int_equal(service_sockets(out), 0);
    assert_int_equal(sockets_of(us, "2"), 2);
    assert_int_equal(sockets_of(us, "1000000"), SERVICE_MAX_SOCKETS);
    assert_int_equal(sockets_of(other, "1"), 0);
    assert_int_equal(sockets_of(longer, "1"), 0);
    static const char *const none[] = { "0", "-1", "", "1x", "x", "99999999999999999999" };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_int_equal(sockets_of(us, none[i]), 0);
}

static int bound_to(const char *address) {
    struct sockaddr_in6 a6 = { .sin6_family = AF_INET6 };
    struct sockaddr_in  a4 = { .sin_family = AF_INET };
    bool                six = strchr(address, ':') != NULL;
    int                 fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(inet_pton(six ? AF_INET6 : AF_INET, address, six ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr),
                     1);
    if (fd >= 0 && bind(fd, six ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4, six ? sizeof a6 : sizeof a4) == 0)
        return fd;
    if (fd >= 0) close(fd);
    return -1; /* no IPv6 here */
}

static void test_reach(void **state) {
    static const struct {
        const char *address;
        bool        out;
    } cases[] = { { "127.0.0.1", false }, { "127.9.9.9", false },        { "0.0.0.0", true },
                  { "::1", false },       { "::ffff:127.0.0.1", false }, { "::", true } };
    int local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;
    assert_false(service_reaches_out(&local, 0));
    assert_false(service_reaches_out(&local, 1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fds[2] = { local, bound_to(cases[i].address) };
        if (fds[1] < 0) {
            printf("skipped: cannot bind %s\n", cases[i].address);
            continue;
        }
        assert_int_equal(service_reaches_out(fds, 2), cases[i].out);
        close(fds[1]);
    }
    close(local);
}

static double watchdog_of(const char *usec, const char *pid) {
    setenv("WATCHDOG_USEC", usec, 1);
    if (pid)
        setenv("WATCHDOG_PID", pid, 1);
    else
        unsetenv("WATCHDOG_PID");
    return service_watchdog();
}

static void test_watchdog(void **state) {
    char us[20], other[20];
    (void)state;
    snprintf(us, sizeof us, "%d", (int)getpid());
    snprintf(other, sizeof other, "%d", (int)getppid());
    assert_true(service_watchdog() == 0);
    assert_true(watchdog_of("60000000", us) == 30 && watchdog_of("60000000", NULL) == 30);
    assert_true(watchdog_of("60000000", other) == 0 && watchdog_of("60000000", "") == 0);
    assert_true(watchdog_of("", us) == 0 && watchdog_of("6s", us) == 0 && watchdog_of("-5", us) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_notify), cmocka_unit_test(test_sockets),
                                        cmocka_unit_test(test_reach), cmocka_unit_test(test_watchdog) };
    unsetenv("WATCHDOG_USEC");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
