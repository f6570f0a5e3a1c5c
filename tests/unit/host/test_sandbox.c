/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox from inside. Every case is a child process that enters it and tries something; the parent judges how the
 * child ended. What the kernel lacks is said, and the cases that need it are skipped.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/log.h"
#include "host/worker/sandbox.h"
#include "tokenizer/internal.h"
#include "unit/support/runtime_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE "hearth sandbox: system call "

static char *cache_dir, *other_dir; /* of the test that runs */

typedef struct ended {
    int  status;
    char said[2048];
} ended;

typedef int (*deed)(void); /* in the child; its result is the exit status */

/* Runs the deed behind the walls. with_cache: cache_dir is writable. between: a GPU is allowed, and this is
 * called in front of the filter. */
static ended run_between(deed act, const char *model, bool with_cache, void (*between)(void *ctx)) {
    const char *readable[] = { model }, *writable[] = { cache_dir };
    ended       x = { 0 };
    int         out[2];
    size_t      n = 0;
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sandbox_options o = { .readable = readable,
                              .n_readable = model ? 1 : 0,
                              .writable = writable,
                              .n_writable = with_cache ? 1 : 0,
                              .missing = SANDBOX_WARN,
                              .gpu = between != NULL,
                              .before_filter = between };
        err             e = { 0 };
        dup2(out[1], STDERR_FILENO);
        close(out[0]);
        if (sandbox_enter(&o, &e) < 0) {
            fprintf(stderr, "%s\n", e.msg);
            _exit(99);
        }
        _exit(act());
    }
    close(out[1]);
    for (ssize_t got; n < sizeof x.said - 1 && (got = read(out[0], x.said + n, sizeof x.said - 1 - n)) > 0;)
        n += (size_t)got;
    close(out[0]);
    assert_int_equal(waitpid(pid, &x.status, 0), pid);
    return x;
}

static ended run_in(deed act, const char *model, bool with_cache) { return run_between(act, model, with_cache, NULL); }

static void is_killed(deed act, int call) {
    ended x = run_in(act, TEST_DEMO, false);
    char  want[80];
    snprintf(want, sizeof want, MESSAGE "%d ", call);
    if (!WIFSIGNALED(x.status) || WTERMSIG(x.status) != SIGSYS)
        fail_msg("call %d: status %x, %s", call, x.status, x.said);
    if (!strstr(x.said, want)) fail_msg("call %d: said %s", call, x.said);
    assert_false(WCOREDUMP(x.status));
}

static void exits_with(deed act, const char *model, bool with_cache, int status) {
    ended x = run_in(act, model, with_cache);
    if (!WIFEXITED(x.status) || WEXITSTATUS(x.status) != status)
        fail_msg("status %x instead of exit %d: %s", x.status, status, x.said);
}

static bool has_filter(void) {
    sandbox_state can;
    sandbox_probe(&can);
    if (!can.filter) printf("skipped: this kernel cannot filter system calls\n");
    return can.filter;
}

static bool has_landlock(int version) {
    sandbox_state can;
    sandbox_probe(&can);
    if (can.landlock < version) printf("skipped: this kernel has no Landlock %d\n", version);
    return can.landlock >= version;
}

/* --- what ends the process ---------------------------------------------------------------------------------------- */

static int do_socket(void) { return socket(AF_INET, SOCK_STREAM, 0) < 0; }
static int do_unix_socket(void) { return socket(AF_UNIX, SOCK_STREAM, 0) < 0; }
static int do_socketpair(void) {
    int p[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, p);
}
static int do_connect(void) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(9) };
    return connect(0, (struct sockaddr *)&a, sizeof a);
}
static int do_bind(void) {
    struct sockaddr_in a = { .sin_family = AF_INET };
    return bind(0, (struct sockaddr *)&a, sizeof a);
}
static int do_exec(void) {
    char *argv[] = { "true", NULL };
    return execv("/bin/true", argv);
}
static int do_fork(void) { return (int)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) < 0; }
static int do_ptrace(void) { return (int)ptrace(PTRACE_TRACEME, 0, NULL, NULL); }
static int do_kill_parent(void) { return kill(getppid(), SIGTERM); }
static int do_kill_all(void) { return kill(-1, SIGTERM); }
static int do_mount(void) { return mount("none", "/tmp", "tmpfs", 0, NULL); }
static int do_unshare(void) { return (int)syscall(SYS_unshare, 0x10000000); }
static int do_bpf(void) { return (int)syscall(SYS_bpf, 0, NULL, 0); }
static int do_io_uring(void) { return (int)syscall(425, 1, NULL); }
static int do_vm_write(void) { return (int)syscall(SYS_process_vm_writev, getppid(), NULL, 0, NULL, 0, 0); }
static int do_memfd(void) { return (int)syscall(SYS_memfd_create, "x", 0); }
static int do_setuid(void) { return (int)syscall(SYS_setuid, 0); }
static int do_unlink(void) { return unlink(TEST_DEMO "-that-is-not-there"); }
static int do_raise_limit(void) {
    struct rlimit l = { 4096, 4096 };
    return setrlimit(RLIMIT_NOFILE, &l);
}
static int do_other_signal_handler(void) {
    struct sigaction a = { .sa_handler = SIG_IGN };
    return (int)syscall(SYS_rt_sigaction, SIGSYS, &a, NULL, 8);
}

static int do_other_parent_signal(void) { return prctl(PR_SET_PDEATHSIG, 0); }

static void test_refused_calls(void **state) {
    (void)state;
    if (!has_filter()) skip();
    is_killed(do_socket, SYS_socket);
    is_killed(do_unix_socket, SYS_socket);
    is_killed(do_socketpair, SYS_socketpair);
    is_killed(do_connect, SYS_connect);
    is_killed(do_bind, SYS_bind);
    is_killed(do_exec, SYS_execve);
    is_killed(do_fork, SYS_clone);
    is_killed(do_ptrace, SYS_ptrace);
    is_killed(do_kill_parent, SYS_kill);
    is_killed(do_kill_all, SYS_kill);
    is_killed(do_mount, SYS_mount);
    is_killed(do_unshare, SYS_unshare);
    is_killed(do_bpf, SYS_bpf);
    is_killed(do_io_uring, 425);
    is_killed(do_vm_write, SYS_process_vm_writev);
    is_killed(do_memfd, SYS_memfd_create);
    is_killed(do_setuid, SYS_setuid);
    is_killed(do_raise_limit, SYS_prlimit64);
    is_killed(do_other_signal_handler, SYS_rt_sigaction);
    is_killed(do_other_parent_signal, SYS_prctl); /* it cannot outlive its parent */
    assert_non_null(strstr(run_in(do_socket, TEST_DEMO, false).said, "(socket) is not allowed"));
#ifdef SYS_unlink
    is_killed(do_unlink, SYS_unlink);
#else
    is_killed(do_unlink, SYS_unlinkat);
#endif
}

/* A thread that is not the first is not a way out. */
static void *thread_socket(void *arg) {
    (void)arg;
    return socket(AF_INET, SOCK_STREAM, 0) < 0 ? NULL : &cache_dir;
}
static int do_thread_socket(void) {
    pthread_t t;
    if (pthread_create(&t, NULL, thread_socket, NULL) != 0) return 90;
    pthread_join(t, NULL);
    return 0;
}
/* Blocking the signal does not help either; the kernel then ends the process without a word. */
static int do_blocked_socket(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return do_socket();
}

static void test_refused_from_threads(void **state) {
    (void)state;
    if (!has_filter()) skip();
    is_killed(do_thread_socket, SYS_socket);
    ended x = run_in(do_blocked_socket, TEST_DEMO, false);
    assert_true(WIFSIGNALED(x.status) && WTERMSIG(x.status) == SIGSYS);
}

/* --- what fails --------------------------------------------------------------------------------------------------- */

static int refusal(const char *path, int flags) {
    int fd = open(path, flags, 0600);
    return fd < 0 ? errno : 0;
}
static int do_read_passwd(void) { return refusal("/etc/passwd", O_RDONLY); }
static int do_read_beside(void) { return refusal(HEARTH_SOURCE_DIR "/models/demo/README.md", O_RDONLY); }
static int do_read_dir(void) { return refusal("/", O_RDONLY | O_DIRECTORY); }
static int do_write_model(void) { return refusal(TEST_DEMO, O_WRONLY); }
static int do_write_outside(void) {
    char *path = path_join(other_dir, "x");
    return refusal(path, O_WRONLY | O_CREAT);
}
static int do_rename_out(void) {
    char *from = path_join(cache_dir, "y"), *to = path_join(other_dir, "y");
    if (refusal(from, O_WRONLY | O_CREAT) != 0) return 91;
    return rename(from, to) == 0 ? 0 : errno;
}
static int do_remove_outside(void) {
    char *path = path_join(other_dir, "z");
    return unlink(path) == 0 ? 0 : errno;
}
static int do_exec_memory(void) {
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED) return 0;
    if (errno != EACCES) return 92;
    p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 93;
    return mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0 ? 0 : errno;
}

static void test_files_outside(void **state) {
    char *z;
    (void)state;
    if (!has_landlock(1)) skip();
    cache_dir = test_temp_dir();
    other_dir = test_temp_dir();
    z = path_join(other_dir, "z");
    FILE *f = fopen(z, "w");
    assert_non_null(f);
    fclose(f);
    exits_with(do_read_passwd, TEST_DEMO, false, EACCES);
    exits_with(do_read_passwd, TEST_DEMO, true, EACCES);
    exits_with(do_read_beside, TEST_DEMO, false, EACCES);
    exits_with(do_read_dir, TEST_DEMO, false, EACCES);
    exits_with(do_write_model, TEST_DEMO, true, EACCES);
    exits_with(do_write_outside, TEST_DEMO, true, EACCES);
    exits_with(do_write_outside, TEST_DEMO, false, EACCES);
    ended x = run_in(do_rename_out, TEST_DEMO, true);
    assert_true(WIFEXITED(x.status) && (WEXITSTATUS(x.status) == EXDEV || WEXITSTATUS(x.status) == EACCES));
    exits_with(do_remove_outside, TEST_DEMO, true, EACCES);
    assert_true(file_exists(z));
    free(z);
    test_temp_dir_remove(cache_dir);
    test_temp_dir_remove(other_dir);
}

static void test_no_executable_memory(void **state) {
    (void)state;
    if (!has_filter()) skip();
    exits_with(do_exec_memory, TEST_DEMO, false, EACCES);
    exits_with(do_write_model, TEST_DEMO, false, EACCES); /* by the filter, also without Landlock */
}

/* --- what works --------------------------------------------------------------------------------------------------- */

static int can_read(const char *path) {
    char byte;
    int  fd = open(path, O_RDONLY);
    return fd >= 0 && read(fd, &byte, 1) == 1 ? 0 : 1;
}

static char *part_path; /* of the file that the child reads */
static int   do_read_part(void) { return can_read(part_path); }
static int   do_read_passwd_ok(void) { return can_read("/etc/passwd"); }

static void put_file(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(path);
}

static void reads(const char *model_dir, const char *model, const char *name, int status) {
    char *m = path_join(model_dir, model);
    part_path = path_join(model_dir, name);
    exits_with(do_read_part, m, false, status);
    free(part_path);
    free(m);
}

/* A split set, a directory of links as pulls make it, a safetensors file with what belongs to it. */
/* --- a GPU --- */

static void *executable;

static void own_file(const char *name, char out[64]) {
    snprintf(out, 64, "/proc/self/task/%d/%s", (int)gettid(), name);
}

/* As loading a driver does: memory that can be executed, a library read, a thread named; but no other file. */
static void make_executable(void *ctx) {
    char path[64];
    (void)ctx;
    own_file("comm", path);
    FILE *f = fopen(path, "w");
    if (!f || fputs("driver", f) < 0 || fclose(f) != 0) _exit(97);
    executable = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC) < 0 || open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0) _exit(98);
}

/* Calls of the driver's types pass the filter (the descriptor is not a device: the kernel refuses), others do not. */
static int ask_a_device(void) {
    char name[64], memory[64];
    int  zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    if (executable == MAP_FAILED || zero >= 0) return 2;
    own_file("comm", name);
    own_file("mem", memory); /* which would be another way to code */
    if (open(name, O_RDWR | O_CLOEXEC) >= 0 || open(memory, O_RDWR | O_CLOEXEC) >= 0) return 5;
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) return 3;
    if (ioctl(STDERR_FILENO, 0xc020462aUL, NULL) == 0 || ioctl(STDERR_FILENO, 33, NULL) == 0) return 4;
    return 0;
}

static int ask_for_more(void) { return ioctl(STDERR_FILENO, 0xc0204699UL, NULL) == 0 ? 2 : 3; }

static void test_gpu(void **state) {
    (void)state;
    sandbox_state can;
    sandbox_probe(&can);
    if (!can.landlock || !can.filter) {
        print_message("skipped: this kernel lacks Landlock or the filter\n");
        return;
    }
    ended x = run_between(ask_a_device, TEST_DEMO, false, make_executable);
    assert_true(WIFEXITED(x.status));
    assert_int_equal(WEXITSTATUS(x.status), 0);
    x = run_between(ask_for_more, TEST_DEMO, false, make_executable);
    assert_true(WIFSIGNALED(x.status) && WTERMSIG(x.status) == SIGSYS);
}

static void test_files_of_a_model(void **state) {
    char *dir = test_temp_dir(), *blobs = test_temp_dir(), *target = path_join(blobs, "sha256-1"), *link;
    (void)state;
    if (!has_landlock(1)) skip();
    put_file(dir, "x-00001-of-00002.gguf", "GGUF....");
    put_file(dir, "x-00002-of-00002.gguf", "GGUF....");
    put_file(dir, "y-00002-of-00002.gguf", "GGUF....");
    put_file(dir, "x.gguf", "GGUF....");
    put_file(dir, "alone.safetensors", "........");
    put_file(dir, "config.json", "{}");
    put_file(dir, "diary", "dear");
    put_file(blobs, "sha256-1", "blob");
    put_file(blobs, "sha256-2", "blob");
    reads(dir, "x-00001-of-00002.gguf", "x-00001-of-00002.gguf", 0);
    reads(dir, "x-00001-of-00002.gguf", "x-00002-of-00002.gguf", 0);
    reads(dir, "x-00001-of-00002.gguf", "y-00002-of-00002.gguf", 1);
    reads(dir, "x.gguf", "x-00002-of-00002.gguf", 1);
    reads(dir, "alone.safetensors", "config.json", 0);
    reads(dir, "alone.safetensors", "diary", 1);
    link = path_join(dir, "model.safetensors");
    assert_int_equal(symlink(target, link), 0);
    reads(dir, "", "model.safetensors", 0);
    reads(dir, "", "diary", 0); /* the directory is the model's */
    reads(dir, "model.safetensors", "config.json", 0);
    part_path = path_join(blobs, "sha256-2");
    exits_with(do_read_part, dir, false, 1);
    free(part_path);
    exits_with(do_read_passwd_ok, "/etc/passwd", false, 0); /* the same call succeeds with the path */
    free(link);
    free(target);
    test_temp_dir_remove(dir);
    test_temp_dir_remove(blobs);
}

/* Descriptors that were open: a socket pair with its usual tools. */
static int pair[2];
static int do_talk(void) {
    char          text[8] = "";
    struct iovec  v = { text, 4 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    int           event = eventfd(0, EFD_CLOEXEC);
    uint64_t      one = 1;
    if (event < 0 || write(event, &one, 8) != 8 || read(event, &one, 8) != 8) return 1;
    memcpy(text, "ping", 4);
    if (sendmsg(pair[0], &m, MSG_NOSIGNAL) != 4) return 2;
    memset(text, 0, sizeof text);
    if (recvmsg(pair[1], &m, 0) != 4 || strcmp(text, "ping") != 0) return 3;
    if (write(pair[1], "pong", 4) != 4 || read(pair[0], text, 4) != 4) return 4;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 5;
    struct rlimit l;
    if (getrlimit(RLIMIT_CORE, &l) != 0 || l.rlim_max != 0) return 6;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_max > 256) return 7;
    return raise(0);
}

static void test_open_descriptors(void **state) {
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    exits_with(do_talk, TEST_DEMO, false, 0);
    close(pair[0]);
    close(pair[1]);
}

/* abort still ends with its own signal: a crash is not mistaken for a forbidden call. */
static int do_abort(void) {
    abort();
    return 0;
}

static void test_abort(void **state) {
    (void)state;
    ended x = run_in(do_abort, TEST_DEMO, false);
    assert_true(WIFSIGNALED(x.status));
    assert_int_equal(WTERMSIG(x.status), SIGABRT);
}

static int ask_demo(const char *disk) {
    runtime_options o = { .path = TEST_DEMO, .engine = { .n_threads = 2, .disk_cache_dir = disk } };
    err             e = { 0 };
    runtime        *m;
    runtime_request q;
    test_result     r;
    if (runtime_open(&m, &o, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    test_greedy(&q, "[{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}]");
    test_ask(m, &q, &r);
    int bad = strcmp(str_cstr(&r.a[0].content), "12 plus 30 is 42.") != 0;
    if (bad) fprintf(stderr, "said %s\n", str_cstr(&r.a[0].content));
    test_result_deinit(&r);
    runtime_free(m);
    return bad;
}

static int do_generate(void) { return ask_demo(NULL); }
static int do_generate_cached(void) { return ask_demo(cache_dir); }

static int count_files(const char *dir) {
    int  n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *x; (x = readdir(d));) n += x->d_name[0] != '.';
    closedir(d);
    return n;
}

/* The real runtime behind the walls: maps the demo, computes on threads, keeps its cache on disk and finds it again. */
static void test_runtime_inside(void **state) {
    (void)state;
    char *dir = test_temp_dir();
    cache_dir = path_join(dir, "not/there/yet");
    exits_with(do_generate, TEST_DEMO, false, 0);
    exits_with(do_generate_cached, TEST_DEMO, true, 0);
    assert_true(count_files(cache_dir) > 0);
    exits_with(do_generate_cached, TEST_DEMO, true, 0);
    free(cache_dir);
    test_temp_dir_remove(dir);
}

/* A pattern that no hand-written splitter knows: PCRE2 works without its JIT. */
static int do_match(void) {
    regex  *r;
    tok_ctx c = { 0 };
    size_t  from = 0, to = 0;
    err     e = { 0 };
    if (regex_open(&r, "\\p{Lu}[a-z]+(?=!)", 17, 0, &e) < 0) return 1;
    if (regex_next(r, &c, "Hello World!", 12, 0, &from, &to, &e) != 1) return 2;
    regex_scratch_free(&c);
    regex_free(r);
    return from == 6 && to == 11 ? 0 : 3;
}

static void test_patterns(void **state) {
    (void)state;
    exits_with(do_match, TEST_DEMO, false, 0);
}

/* --- what is said ------------------------------------------------------------------------------------------------- */

static struct {
    log_level level;
    char      text[512];
} heard;

static void listen_log(void *ctx, const log_record *r) {
    (void)ctx;
    heard.level = r->level;
    snprintf(heard.text, sizeof heard.text, "%s", r->message);
}

static int do_nothing(void) {
    fprintf(stderr, "%d %s", (int)heard.level, heard.text);
    return 0;
}

static void test_description(void **state) {
    sandbox_state s = { .no_new_privs = true, .filter = true, .landlock = 3, .one_thread = true };
    str           text;
    (void)state;
    str_init(&text);
    sandbox_describe(&s, &text);
    assert_string_equal(str_cstr(&text), "no new privileges, system-call filter, Landlock 3 (files)");
    assert_true(sandbox_is_complete(&s));
    str_clear(&text);
    sandbox_describe(&(sandbox_state){ .one_thread = true }, &text);
    assert_non_null(strstr(str_cstr(&text), "NO system-call filter"));
    assert_non_null(strstr(str_cstr(&text), "NO Landlock"));
    /* What the log says is what the probe promised. */
    sandbox_probe(&s);
    str_clear(&text);
    sandbox_describe(&s, &text);
    log_set_sink(listen_log, NULL, LOG_INFO);
    ended x = run_in(do_nothing, TEST_DEMO, false);
    log_set_sink(NULL, NULL, LOG_OFF);
    assert_int_equal(x.status, 0);
    assert_string_equal(x.said + 2, str_cstr(&text));
    assert_int_equal(x.said[0] - '0', sandbox_is_complete(&s) ? LOG_INFO : LOG_WARN);
    str_deinit(&text);
}

/* --- kernels that lack something: a filter that makes calls fail plays the older kernel --------------------------- */

static const int  landlock_calls[] = { 444, 445, 446, 0 }, seccomp_calls[] = { SYS_seccomp, 0 };
static const int *absent_calls;

static void pretend_old_kernel(void) {
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    for (const int *n = absent_calls; f && *n; n++) {
        if (seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), *n, 0) != 0) _exit(80);
    }
    if (!f || seccomp_load(f) != 0) _exit(81);
    seccomp_release(f);
}

/* In a child of an older kernel: 1 entered it, 2 the state is not complete, 4 a warning was logged, 8 /etc/passwd can
 * be read, 16 the model can be opened for writing. */
static int enter_old(const int *absent, sandbox_missing missing) {
    int status;
    absent_calls = absent;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const char     *readable[] = { TEST_DEMO };
        sandbox_state   s = { 0 };
        sandbox_options o = { .readable = readable, .n_readable = 1, .missing = missing, .held = &s };
        err             e = { 0 };
        pretend_old_kernel();
        log_set_sink(listen_log, NULL, LOG_INFO);
        int bits = sandbox_enter(&o, &e) == 0 ? 1 : 0;
        bits |= sandbox_is_complete(&s) ? 0 : 2;
        bits |= heard.level == LOG_WARN ? 4 : 0;
        bits |= refusal("/etc/passwd", O_RDONLY) == 0 ? 8 : 0;
        bits |= refusal(TEST_DEMO, O_WRONLY) == 0 ? 16 : 0;
        _exit(bits);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_older_kernels(void **state) {
    (void)state;
    if (!has_filter() || !has_landlock(1)) skip();
    /* Without Landlock: entered with a warning, the filter alone holds; or refused. */
    assert_int_equal(enter_old(landlock_calls, SANDBOX_WARN), 1 | 2 | 4 | 8);
    assert_int_equal(enter_old(landlock_calls, SANDBOX_REFUSE) & 3, 2);
    /* Without a filter: Landlock alone holds, also against writing. */
    assert_int_equal(enter_old(seccomp_calls, SANDBOX_WARN), 1 | 2 | 4);
    assert_int_equal(enter_old(seccomp_calls, SANDBOX_REFUSE) & 3, 2);
}

static void test_missing_path(void **state) {
    ended x;
    (void)state;
    if (!has_landlock(1)) skip();
    x = run_in(do_nothing, "/nowhere/model.gguf", false);
    assert_int_equal(WEXITSTATUS(x.status), 99);
    assert_non_null(strstr(x.said, "/nowhere/model.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_calls),
        cmocka_unit_test(test_refused_from_threads),
        cmocka_unit_test(test_files_outside),
        cmocka_unit_test(test_no_executable_memory),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_files_of_a_model),
        cmocka_unit_test(test_open_descriptors),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_runtime_inside),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_missing_path),
        cmocka_unit_test(test_older_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
