/* SPDX-License-Identifier: Apache-2.0 */
/* Models in worker processes: answers, places and memory (failures: test_host_faults.c). The program itself is
 * run for the workers, so this is what `hearth serve` does behind its sockets. */
#include "unit/support/host_cases.h"

#include "base/file.h"
#include "host/host.h"
#include "host/parent/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A sanitizer's worker is slower, but its answers are still under way when somebody acts upon their first words. */
static int tokens(int n) { return TEST_SANITIZED ? n / 3 : n; }

/* Everything as the same model says it in this process. */
static void test_same_as_in_process(void **state) {
    host_options    o = usual();
    host           *h = open_host(&o);
    runtime        *solo;
    runtime_options ro = { .path = TEST_DEMO, .engine = { .n_threads = 1 } };
    runtime_request q;
    test_result     a, b;
    runtime_info    info;
    str             s, t;
    tok_ids         x = { 0 }, y = { 0 };
    size_t          n = 0, m = 0;
    host_stats      st;
    (void)state;
    assert_int_equal(runtime_open(&solo, &ro, NULL), 0);
    add(h, "demo", TEST_DEMO);
    assert_int_equal(look_up(h, "demo").state, HOST_UNLOADED);
    test_greedy(&q, STORY);
    q.max_tokens = 60;
    q.want_logprob = true;
    q.n_top = 3;
    ask(h, "demo:latest", &q, &a);
    test_ask(solo, &q, &b);
    assert_int_equal(a.a[0].n_tokens, b.a[0].n_tokens);
    assert_memory_equal(a.a[0].tokens, b.a[0].tokens, sizeof(int32_t) * (size_t)a.a[0].n_tokens);
    assert_true(a.a[0].logprob == b.a[0].logprob);
    assert_int_equal(a.a[0].usage.prompt_tokens, b.a[0].usage.prompt_tokens);
    assert_int_equal(a.a[0].usage.generated_tokens, b.a[0].usage.generated_tokens);
    assert_answer(&a, str_cstr(&b.a[0].content));
    test_result_deinit(&b);
    str_init(&s);
    str_init(&t);
    assert_int_equal(host_render(h, view_of("demo"), &q, &s, NULL), 0);
    assert_int_equal(runtime_render(solo, &q, &t, NULL), 0);
    assert_string_equal(str_cstr(&s), str_cstr(&t));
    assert_int_equal(host_count(h, view_of("demo"), &q, &n, NULL), 0);
    assert_int_equal(runtime_count(solo, &q, &m, NULL), 0);
    assert_int_equal(n, m);
    assert_int_equal(host_tokenize(h, view_of("demo"), view_of(STORY), true, true, &x, NULL), 0);
    assert_int_equal(runtime_tokenize(solo, view_of(STORY), true, true, &y, NULL), 0);
    assert_int_equal(x.count, y.count);
    assert_memory_equal(x.data, y.data, x.count * sizeof *x.data);
    str_clear(&s);
    str_clear(&t);
    assert_int_equal(host_detokenize(h, view_of("demo"), x.data, x.count, true, &s, NULL), 0);
    assert_int_equal(runtime_detokenize(solo, y.data, y.count, true, &t, NULL), 0);
    assert_string_equal(str_cstr(&s), str_cstr(&t));
    str_clear(&s);
    assert_int_equal(host_template(h, view_of("demo"), &s, NULL), 0);
    runtime_describe(solo, &info);
    assert_string_equal(str_cstr(&s), info.template_text);
    host_model d = look_up(h, "demo");
    assert_true(d.state == HOST_LOADED && d.pid > 0 && d.described && d.n_params == info.n_params);
    assert_true(d.need_bytes > d.file_bytes && d.file_bytes == info.file_bytes);
    host_stat(h, &st);
    assert_true(st.n_loaded == 1 && st.runtime.requests == 1 && st.runtime.engine.tokens_generated == 60);
    /* A mistake comes back as the runtime says it. */
    q.messages = view_of("nonsense");
    ask(h, "demo", &q, &a);
    assert_int_equal(a.why.code, ERR_ARG);
    assert_failure(&a, "messages");
    err e = { 0 };
    assert_int_equal(host_load(h, view_of("nobody"), HOST_KEEP_DEFAULT, &e), ERR_NOTFOUND);
    pid_t pid = d.pid;
    assert_int_equal(host_unload(h, view_of("demo"), NULL), 0);
    assert_gone(pid);
    host_stat(h, &st);
    assert_true(st.n_loaded == 0 && st.need_bytes == 0 && st.runtime.engine.tokens_generated == 60);
    str_deinit(&s);
    str_deinit(&t);
    tok_ids_deinit(&x);
    tok_ids_deinit(&y);
    runtime_free(solo);
    host_free(h);
}

typedef struct watch {
    host    *h;
    uint64_t limit;
    bool     stop; /* atomic */
    uint64_t most_need, most_resident;
    int      most_loaded, samples;
} watch;

/* All pages of the workers' processes, those of mapped weights too. */
static uint64_t resident(host *h) {
    host_model *list;
    size_t      n;
    uint64_t    sum = 0;
    if (host_list(h, &list, &n, NULL) < 0) return 0;
    for (size_t i = 0; i < n; i++) {
        char  path[64];
        FILE *f;
        long  total, pages = 0;
        if (!list[i].pid) continue;
        snprintf(path, sizeof path, "/proc/%d/statm", list[i].pid);
        if (!(f = fopen(path, "re"))) continue;
        if (fscanf(f, "%ld %ld", &total, &pages) == 2) sum += (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
        fclose(f);
    }
    free(list);
    return sum;
}

static void *watch_main(void *ctx) {
    watch *w = ctx;
    while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
        host_stats s;
        host_stat(w->h, &s);
        uint64_t r = resident(w->h);
        if (s.need_bytes > w->most_need) w->most_need = s.need_bytes;
        if (r > w->most_resident) w->most_resident = r;
        if (s.n_loaded > w->most_loaded) w->most_loaded = s.n_loaded;
        w->samples++;
        nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
    }
    return NULL;
}

/* Three models, memory for two: requests in random order, several at once, are all answered as they are alone. */
static void test_three_in_a_budget_for_two(void **state) {
    enum { N = TEST_SANITIZED ? 8 : 24, AT_ONCE = 4 };
    static const char *const names[] = { "a", "b", "c" };
    const int                rounds = getenv("HEARTH_LONG") ? 40 : 1;
    host_options             o = usual();
    uint64_t                 random = 11, most = 0;
    char                     solo[3][400];
    runtime_request          q[AT_ONCE];
    test_result              r[AT_ONCE];
    int                      which[AT_ONCE];
    pthread_t                thread;
    host_stats               before, after;
    (void)state;
    host *h = open_host(&o);
    add(h, "a", TEST_DEMO);
    add(h, "b", TEST_DRAFT);
    add(h, "c", TEST_DEMO);
    for (int i = 0; i < 3; i++) {
        test_greedy(&q[0], STORY);
        q[0].max_tokens = 12;
        ask(h, names[i], &q[0], &r[0]);
        snprintf(solo[i], sizeof solo[i], "%s", str_cstr(&r[0].a[0].content));
        test_result_deinit(&r[0]);
        host_model m = look_up(h, names[i]);
        if (m.need_bytes > most) most = m.need_bytes;
    }
    host_free(h);
    o.budget.on[0].bytes = 2 * most;
    o.yield_ms = 20;
    h = open_host(&o);
    for (int i = 0; i < 3; i++) add(h, names[i], i == 1 ? TEST_DRAFT : TEST_DEMO);
    watch w = { .h = h, .limit = 2 * most };
    assert_int_equal(pthread_create(&thread, NULL, watch_main, &w), 0);
    host_stat(h, &before);
    for (int done = 0; done < N * rounds; done += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) {
            which[i] = (int)(test_random(&random) % 3);
            test_greedy(&q[i], STORY);
            q[i].max_tokens = 12;
            submit(h, names[which[i]], &q[i], &r[i]);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            test_result_wait(&r[i]);
            assert_answer(&r[i], solo[which[i]]);
        }
    }
    __atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    host_stat(h, &after);
    printf("budget %.1f MiB: counted at most %.1f, resident at most %.1f MiB in %d samples, %d models at most\n",
           (double)(2 * most) / 1048576, (double)w.most_need / 1048576, (double)w.most_resident / 1048576, w.samples,
           w.most_loaded);
    assert_true(w.most_need <= 2 * most);
    assert_true(w.most_loaded <= 2);
    if (!TEST_SANITIZED) assert_true(w.most_resident <= 2 * most);
    assert_int_equal(after.crashes, 0);
    host_free(h);
}

/* Never unloaded: a model in use, a pinned one. Refused at once: what can never fit, with both numbers. */
static void test_places(void **state) {
    host_options       o = usual();
    host_model_options pinned = { .keep_alive_ms = 0, .pinned = true };
    runtime_request    q, long_one;
    test_result        r, busy;
    (void)state;
    o.max_loaded = 1;
    o.yield_ms = 10;
    host *h = open_host(&o);
    add(h, "a", TEST_DEMO);
    add(h, "b", TEST_DRAFT);
    test_greedy(&q, SUM);
    test_greedy(&long_one, STORY);
    long_one.max_tokens = tokens(150);
    long_one.ignore_eos = true;
    submit(h, "a", &long_one, &busy);
    wait_events(&busy, 3);
    pid_t pid = look_up(h, "a").pid;
    ask(h, "b", &q, &r); /* waits for the end of the long one */
    pthread_mutex_lock(&busy.lock);
    bool over = busy.last;
    pthread_mutex_unlock(&busy.lock);
    assert_true(over && !busy.failed && busy.a[0].usage.generated_tokens == tokens(150));
    test_result_deinit(&busy);
    assert_false(r.failed);
    test_result_deinit(&r);
    assert_gone(pid);
    host_free(h);
    /* A place that never becomes free: the request is told after a while. */
    o.wait_ms = 50;
    h = open_host(&o);
    assert_int_equal(host_add_model_with(h, "stays", TEST_DEMO, &pinned, NULL), 0);
    add(h, "b", TEST_DRAFT);
    ask(h, "stays", &q, &r);
    assert_answer(&r, "12 plus 30 is 42.");
    ask(h, "b", &q, &r);
    assert_failure(&r, "the pinned models leave");
    host_model m = look_up(h, "stays");
    assert_true(m.state == HOST_LOADED && m.expires_ms == HOST_KEEP_FOREVER);
    host_free(h);
    h = open_host(&o);
    add(h, "a", TEST_DEMO);
    add(h, "b", TEST_DRAFT);
    long_one.max_tokens = tokens(900);
    submit(h, "a", &long_one, &busy);
    wait_events(&busy, 3);
    ask(h, "b", &q, &r);
    assert_int_equal(r.why.code, ERR_BUSY);
    assert_failure(&r, "no place became free");
    test_result_wait(&busy);
    assert_false(busy.failed);
    test_result_deinit(&busy);
    host_free(h);
    o.wait_ms = 0;
    o.budget.on[0].bytes = 1 << 20;
    h = open_host(&o);
    add(h, "a", TEST_DEMO);
    ask(h, "a", &q, &r);
    assert_int_equal(r.n_events, 1);
    assert_failure(&r, "GiB of memory and the limit is 0.00 GiB");
    host_free(h);
}

/* A second device, that the models only claim to need: every device counts by itself. */
static void test_devices(void **state) {
    host_options    o = usual();
    runtime_request q, long_one;
    test_result     r, busy;
    host_stats      st;
    err             e = { 0 };
    (void)state;
    o.budget = (device_memory){ .on = { { DEVICE_CPU, HOST_NO_LIMIT }, { "cuda:0", 1000 } }, .n = 2 };
    o.debug_fault = "a=need:cuda:0=600;b=need:cuda:0=600;large=need:cuda:0=1001;lost=need:cuda:7=1";
    o.yield_ms = 10;
    host *h = open_host(&o);
    add(h, "plain", TEST_DRAFT);
    add(h, "a", TEST_DRAFT);
    add(h, "b", TEST_DRAFT);
    add(h, "large", TEST_DRAFT);
    add(h, "lost", TEST_DRAFT);
    test_greedy(&q, SUM);
    q.max_tokens = 4;
    /* The one used least recently takes nothing of the device that is full: it stays. */
    assert_int_equal(host_load(h, view_of("plain"), HOST_KEEP_DEFAULT, &e), 0);
    assert_int_equal(host_load(h, view_of("a"), HOST_KEEP_DEFAULT, &e), 0);
    uint64_t own = look_up(h, "plain").need_bytes;
    assert_int_equal(look_up(h, "a").need_bytes, own + 600);
    ask(h, "b", &q, &r);
    assert_false(r.failed);
    test_result_deinit(&r);
    assert_int_equal(look_up(h, "plain").state, HOST_LOADED);
    assert_int_equal(look_up(h, "a").state, HOST_UNLOADED);
    host_stat(h, &st); /* of the machine's memory */
    assert_true(st.n_loaded == 2 && st.need_bytes == 2 * own && st.limit_bytes == HOST_NO_LIMIT);
    /* A busy one is waited for, and nobody else is asked. */
    test_greedy(&long_one, STORY);
    long_one.max_tokens = tokens(150);
    long_one.ignore_eos = true;
    submit(h, "b", &long_one, &busy);
    wait_events(&busy, 3);
    pid_t plain = look_up(h, "plain").pid;
    ask(h, "a", &q, &r);
    assert_false(r.failed);
    test_result_deinit(&r);
    test_result_wait(&busy);
    assert_true(!busy.failed && busy.a[0].usage.generated_tokens == tokens(150));
    test_result_deinit(&busy);
    assert_int_equal(look_up(h, "plain").pid, plain);
    assert_int_equal(look_up(h, "b").state, HOST_UNLOADED);
    /* Refused: more than the device has, whatever the machine has; a device that nobody knows. Nothing makes room. */
    ask(h, "large", &q, &r);
    assert_failure(&r, "GiB of memory on cuda:0 and the limit is 0.00 GiB");
    ask(h, "lost", &q, &r);
    assert_failure(&r, "of memory on cuda:7, and there is no budget for that device");
    assert_true(look_up(h, "a").state == HOST_LOADED && look_up(h, "plain").pid == plain);
    host_free(h);
    /* The other way round: it would fit on the device, but not into the machine. */
    o.budget.on[0].bytes = own - 1;
    h = open_host(&o);
    add(h, "a", TEST_DRAFT);
    ask(h, "a", &q, &r);
    assert_failure(&r, "raise --mem-limit");
    host_free(h);
}

/* Cancelled before, while and after the model is loaded; paused and resumed; removed; the host closed under load. */
static void test_control(void **state) {
    host_options    o = usual();
    host           *h = open_host(&o);
    runtime_request q[6];
    test_result     r[6];
    (void)state;
    add(h, "a", TEST_DEMO);
    for (int i = 0; i < 6; i++) {
        test_greedy(&q[i], STORY);
        q[i].max_tokens = tokens(600);
        q[i].ignore_eos = true;
    }
    uint64_t id = submit(h, "a", &q[0], &r[0]);
    host_cancel(h, id);
    test_result_wait(&r[0]);
    if (r[0].failed) assert_int_equal(r[0].why.code, ERR_CANCELLED);
    test_result_deinit(&r[0]);
    id = submit(h, "a", &q[1], &r[1]);
    wait_events(&r[1], 5);
    host_pause(h, id);
    submit(h, "a", &q[2], &r[2]);
    test_result_wait(&r[2]);
    assert_int_equal(r[2].a[0].usage.generated_tokens, tokens(600));
    pthread_mutex_lock(&r[1].lock);
    assert_false(r[1].last);
    pthread_mutex_unlock(&r[1].lock);
    host_resume(h, id);
    test_result_wait(&r[1]);
    assert_string_equal(str_cstr(&r[1].a[0].content), str_cstr(&r[2].a[0].content));
    test_result_deinit(&r[1]);
    test_result_deinit(&r[2]);
    id = submit(h, "a", &q[3], &r[3]);
    wait_events(&r[3], 5);
    host_cancel(h, id);
    host_cancel(h, id + 1);
    test_result_wait(&r[3]);
    assert_int_equal(r[3].a[0].finish, RUNTIME_CANCELLED);
    test_result_deinit(&r[3]);
    submit(h, "a", &q[4], &r[4]);
    wait_events(&r[4], 3);
    assert_int_equal(host_remove_model(h, view_of("a"), NULL), 0);
    assert_int_equal(host_find(h, view_of("a"), &(host_model){ 0 }, NULL), ERR_NOTFOUND);
    add(h, "a", TEST_DRAFT);
    submit(h, "a", &q[5], &r[5]);
    wait_events(&r[5], 3);
    test_result_wait(&r[4]);
    assert_int_equal(r[4].a[0].usage.generated_tokens, tokens(600));
    test_result_deinit(&r[4]);
    pid_t pid = look_up(h, "a").pid;
    host_free(h);
    test_result_wait(&r[5]);
    test_result_deinit(&r[5]);
    assert_gone(pid);
}

/* --- one worker without a host --- */

typedef struct deaf {
    child          *c;
    runtime_request q;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t  moved;
    int             n_events, n_last, n_loading;
    float           fraction;
    bool            stopped_listening, listen, over;
    err             why;
    arena           mem;
} deaf;

static void send_to(deaf *d, str *s) {
    assert_int_equal(child_send(d->c, s->data, s->len, NULL), 0);
    str_deinit(s);
}

static int deaf_frame(void *ctx, const wire_frame *f, err *e) {
    deaf         *d = ctx;
    runtime_event ev;
    str           s;
    (void)e;
    str_init(&s);
    pthread_mutex_lock(&d->lock); /* child_open has returned */
    switch (f->type) {
    case WIRE_NEED:
        assert_int_equal(wire_put_empty(&s, WIRE_LOAD, 0, NULL), 0);
        send_to(d, &s);
        break;
    case WIRE_LOADING: {
        float fraction;
        assert_int_equal(wire_get_loading(f->body, &fraction, NULL), 0);
        assert_true(fraction >= d->fraction);
        d->fraction = fraction;
        d->n_loading++;
        break;
    }
    case WIRE_READY:
        assert_int_equal(wire_put_request(&s, WIRE_SUBMIT, 1, &d->q, NULL), 0);
        send_to(d, &s);
        break;
    case WIRE_EVENT:
        assert_int_equal(wire_get_event(f->body, &d->mem, &ev, NULL), 0);
        d->n_events++;
        d->n_last += ev.last;
        if (ev.kind == RUNTIME_ERROR) d->why = *ev.error;
        if (d->n_events == 3) {
            d->stopped_listening = true;
            pthread_cond_broadcast(&d->moved);
            while (!d->listen) pthread_cond_wait(&d->moved, &d->lock);
        }
        pthread_cond_broadcast(&d->moved);
        break;
    default: break;
    }
    pthread_mutex_unlock(&d->lock);
    return 0;
}

static child_activity deaf_activity(void *ctx) {
    (void)ctx;
    return CHILD_IDLE;
}

static void deaf_end(void *ctx, const child_end *end) {
    deaf *d = ctx;
    pthread_mutex_lock(&d->lock);
    assert_true(end->asked);
    d->over = true;
    pthread_cond_broadcast(&d->moved);
    pthread_mutex_unlock(&d->lock);
}

static unsigned long long cpu_ticks(pid_t pid) {
    char               path[64], text[512] = "";
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE       *f = fopen(path, "re");
    const char *at = f && fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
    if (f) fclose(f);
    if (at) (void)sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system);
    return user + system;
}

/* A server that stops reading: the engine does not wait for it, the worker's memory stays bounded, and the request ends
 * with one error when somebody listens again. */
static void test_events_not_taken(void **state) {
    deaf          d = { .n_events = 0 };
    child_options o = { .program = getenv("HEARTH_PROGRAM"),
                        .env = kept_env,
                        .open = { .runtime = { .path = TEST_DEMO, .engine = { .n_threads = 1 } },
                                  .name = "m",
                                  .fault = "",
                                  .queue_bytes = 2000 },
                        .on_frame = deaf_frame,
                        .activity = deaf_activity,
                        .on_end = deaf_end,
                        .ctx = &d };
    (void)state;
    if (TEST_SANITIZED) {
        printf("skipped: a sanitizer's worker takes minutes to fill a socket\n");
        skip();
    }
    pthread_mutex_init(&d.lock, NULL);
    pthread_cond_init(&d.moved, NULL);
    arena_init(&d.mem, 0);
    test_greedy(&d.q, STORY);
    d.q.max_tokens = 900;
    d.q.ignore_eos = true;
    pthread_mutex_lock(&d.lock);
    assert_int_equal(child_open(&d.c, &o, NULL), 0);
    while (!d.stopped_listening) pthread_cond_wait(&d.moved, &d.lock);
    pthread_mutex_unlock(&d.lock);
    for (int quiet = 0; quiet < 10;) { /* until it does nothing more: a tick is 10 ms */
        unsigned long long before = cpu_ticks(child_pid(d.c));
        nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
        quiet = cpu_ticks(child_pid(d.c)) == before ? quiet + 1 : 0;
    }
    pthread_mutex_lock(&d.lock);
    d.listen = true;
    pthread_cond_broadcast(&d.moved);
    while (!d.n_last) pthread_cond_wait(&d.moved, &d.lock);
    assert_int_equal(d.n_last, 1);
    assert_int_equal(d.why.code, ERR_BUSY);
    assert_true(d.n_events < 900);
    assert_true(d.n_loading >= 2 && d.fraction == 1);
    child_stop(d.c);
    while (!d.over) pthread_cond_wait(&d.moved, &d.lock);
    pthread_mutex_unlock(&d.lock);
    child_free(d.c);
    arena_deinit(&d.mem);
    pthread_cond_destroy(&d.moved);
    pthread_mutex_destroy(&d.lock);
}

/* The process that has the host is killed with -9: its workers end, too. */
static void test_no_orphans(void **state) {
    int pipe_fds[2], pid = 0, status;
    (void)state;
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t parent = fork();
    if (parent == 0) {
        host_options    o = usual();
        host           *h = open_host(&o);
        runtime_request q;
        test_result     r;
        add(h, "a", TEST_DEMO);
        test_greedy(&q, STORY);
        q.max_tokens = 900;
        q.ignore_eos = true;
        submit(h, "a", &q, &r);
        wait_events(&r, 4);
        pid = look_up(h, "a").pid;
        (void)!write(pipe_fds[1], &pid, sizeof pid);
        for (;;) pause();
    }
    assert_int_equal(read(pipe_fds[0], &pid, sizeof pid), sizeof pid);
    assert_true(pid > 0);
    kill(parent, SIGKILL);
    waitpid(parent, &status, 0);
    assert_gone(pid);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_in_process),
        cmocka_unit_test(test_three_in_a_budget_for_two),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_control),
        cmocka_unit_test(test_events_not_taken),
        cmocka_unit_test(test_no_orphans),
    };
    keep_environment();
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
