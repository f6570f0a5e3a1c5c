/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that is really lost: a kernel reads an address that does not exist while a model generates. Its requests end with
 * ERR_LOST and a sentence, everything later is refused the same way, and nothing hangs; another process has the device as
 * before.
 */
#include "kernels/cuda/probe.h"
#include "unit/support/runtime_support.h"
#include "unit/support/support.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM ((size_t)64 << 10)
#define DRAFT HEARTH_SOURCE_DIR "/models/demo/draft.gguf"
#define STORY "[{\"role\":\"user\",\"content\":\"Tell me a story.\"}]"

enum { NO_DEVICE = 77 };

/* After this the process has lost the device. */
static int poison(err *e) {
    cuda_device d;
    void       *sink = NULL;
    int         rc = cuda_device_open(&d, 0, e);
    if (rc == 0) rc = cuda_alloc(&sink, ROOM, e);
    if (rc == 0) rc = cuda_probe_read(&d, (const void *)(uintptr_t)4096, 1 << 20, sink, NULL, e);
    return rc == 0 ? cuda_wait(NULL, e) : rc;
}

static void lost_under_load(void **state) {
    runtime_options o = { .path = DRAFT, .engine = { .device = "cuda:0" } };
    runtime        *m;
    runtime_request q[4], late;
    test_result     r[4], refused;
    err             e = { 0 };
    (void)state;
    if (runtime_open(&m, &o, &e) < 0) fail_msg("%s", e.msg);
    for (int i = 0; i < 4; i++) {
        test_greedy(&q[i], STORY);
        q[i].max_tokens = 900;
        q[i].ignore_eos = true;
        test_result_init(&r[i]);
        test_submit(m, &q[i], &r[i]);
    }
    usleep(20000);
    assert_int_equal(poison(&e), ERR_LOST);
    for (int i = 0; i < 4; i++) {
        test_result_wait(&r[i]);
        assert_true(r[i].failed);
        assert_int_equal(r[i].why.code, ERR_LOST);
        assert_true(r[i].why.msg[0]);
        test_result_deinit(&r[i]);
    }
    test_greedy(&late, STORY);
    test_ask(m, &late, &refused);
    assert_int_equal(refused.why.code, ERR_LOST);
    test_result_deinit(&refused);
    runtime_free(m);
}

/* The driver starts in the child alone: a process that has used it cannot be copied. */
static int in_child(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(lost_under_load) };
    int                     status = 0;
    pid_t                   child = fork();
    if (child == 0) _exit(cuda_device_count(NULL) == 0 ? NO_DEVICE : cmocka_run_group_tests(tests, NULL, NULL));
    bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    return ended ? WEXITSTATUS(status) : 1;
}

int main(void) {
    int         failed = in_child();
    cuda_device d;
    err         e = { 0 };
    if (failed == NO_DEVICE) {
        printf("skipped: no device\n");
        return 0;
    }
    if (cuda_device_open(&d, 0, &e) == 0) return failed;
    printf("the device is lost for other processes, too: %s\n", e.msg);
    return 1;
}
