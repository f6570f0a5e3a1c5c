/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox's system calls: an allow-list, made by libseccomp for the architecture that runs.
 *
 * Names that an architecture or this version of libseccomp does not know are left out. A call that is not allowed is
 * not made: the thread gets SIGSYS, whose handler writes one line and lets the signal end the process. The filter
 * forbids changing that handler; where it is blocked the kernel ends the process itself.
 */
#include "host/worker/sandbox_walls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { GET_ACTION_AVAIL = 2 };

static const char *const always[] = {
    /* descriptors that are open */
    "read", "pread64", "readv", "preadv", "write", "pwrite64", "writev", "pwritev", "lseek", "close", "close_range",
    "dup", "fstat", "fstat64", "getdents64", "fadvise64", "readahead", "poll", "ppoll", "select", "pselect6",
    "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "timerfd_create",
    "timerfd_settime", "timerfd_gettime", "pipe2", "sendmsg", "recvmsg", "sendto", "recvfrom", "sendmmsg", "recvmmsg",
    "shutdown", "getsockopt", "fstatfs",
    /* names of files: looking; opening is below */
    "newfstatat", "stat", "lstat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "getcwd",
    "statfs", "umask",
    /* memory; mmap and mprotect are below */
    "brk", "munmap", "mremap", "madvise", "mincore", "mlock", "mlock2", "munlock", "msync", "membarrier",
    /* threads and time */
    "futex", "futex_waitv", "set_robust_list", "get_robust_list", "rseq", "set_tid_address", "sched_yield",
    "sched_getaffinity", "sched_getparam", "sched_getscheduler", "getcpu", "nanosleep", "clock_nanosleep",
    "clock_gettime", "clock_getres", "gettimeofday", "time", "exit", "exit_group", "restart_syscall",
    /* signals of its own; rt_sigaction, kill and tgkill are below */
    "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "rt_sigsuspend", "sigaltstack",
    /* questions */
    "getrandom", "getpid", "gettid", "getppid", "getpgrp", "getuid", "geteuid", "getgid", "getegid", "uname", "sysinfo",
    "getrusage", "times", "getpriority",
#ifdef __x86_64__
    "arch_prctl", /* thread registers, and tiles (kernels/cpu.c) */
#endif
#ifdef SANITIZED
    "personality", "capget", /* looked at by the sanitizers' own code */
#endif
};

/* Only with a writable path. */
static const char *const writing[] = { "fsync",     "fdatasync",      "sync_file_range", "ftruncate", "fallocate",
                                       "flock",     "rename",         "renameat",        "renameat2", "unlink",
                                       "unlinkat",  "mkdir",          "mkdirat",         "rmdir",     "fchmod",
                                       "utimensat", "copy_file_range" };

static int rule(scmp_filter_ctx f, uint32_t action, const char *name, unsigned n, const struct scmp_arg_cmp *args,
                err *e) {
    int nr = seccomp_syscall_resolve_name(name), rc;
    if (nr == __NR_SCMP_ERROR) return 0;
    rc = seccomp_rule_add_array(f, action, nr, n, args);
    /* EDOM: not a call of this architecture. */
    if (rc == 0 || rc == -EDOM) return 0;
    return err_set(e, ERR_UNSUPPORTED, "sandbox: no filter rule for %s: %s", name, strerror(-rc));
}

/* The call is allowed with these values of one argument. */
static int allow_values(scmp_filter_ctx f, const char *name, unsigned arg, const uint64_t *values, size_t n, err *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct scmp_arg_cmp c = { arg, SCMP_CMP_EQ, values[i], 0 };
        rc = rule(f, SCMP_ACT_ALLOW, name, 1, &c, e);
    }
    return rc;
}

static int allow_names(scmp_filter_ctx f, const char *const *names, size_t n, err *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) rc = rule(f, SCMP_ACT_ALLOW, names[i], 0, NULL, e);
    return rc;
}

/* Allowed where the masked argument has the value. */
static int masked(scmp_filter_ctx f, uint32_t action, const char *name, unsigned arg, uint64_t mask, uint64_t value,
                  err *e) {
    struct scmp_arg_cmp c = { arg, SCMP_CMP_MASKED_EQ, mask, value };
    return rule(f, action, name, 1, &c, e);
}

static int memory_rules(scmp_filter_ctx f, err *e) {
    static const char *const names[] = { "mmap", "mprotect" };
    int                      rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof names[0]; i++) {
        rc = masked(f, SCMP_ACT_ALLOW, names[i], 2, PROT_EXEC, 0, e);
        if (rc == 0) rc = masked(f, SCMP_ACT_ERRNO(EACCES), names[i], 2, PROT_EXEC, PROT_EXEC, e);
    }
    return rc;
}

static int thread_rules(scmp_filter_ctx f, err *e) {
    const uint64_t spaces =
        CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    int rc = masked(f, SCMP_ACT_ALLOW, "clone", 0, CLONE_THREAD | spaces, CLONE_THREAD, e);
    if (rc == 0) rc = rule(f, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL, e); /* its flags are in memory */
    /* It could name any process. */
    if (rc == 0) rc = rule(f, SCMP_ACT_ERRNO(EPERM), "sched_setaffinity", 0, NULL, e);
    return rc;
}

/* Opening: anything with a writable path (Landlock says where), else reading alone. */
static int open_rules(scmp_filter_ctx f, bool may_write, err *e) {
    static const struct {
        const char *name;
        unsigned    flags;
    } calls[] = { { "openat", 2 }, { "open", 1 } };
    const uint64_t changes = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND;
    int            rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof calls / sizeof calls[0]; i++) {
        const char *name = calls[i].name;
        unsigned    arg = calls[i].flags;
        if (may_write) {
            rc = rule(f, SCMP_ACT_ALLOW, name, 0, NULL, e);
            continue;
        }
        rc = masked(f, SCMP_ACT_ALLOW, name, arg, changes, O_RDONLY, e);
        if (rc == 0) rc = masked(f, SCMP_ACT_ERRNO(EACCES), name, arg, O_ACCMODE, O_WRONLY, e);
        if (rc == 0) rc = masked(f, SCMP_ACT_ERRNO(EACCES), name, arg, O_ACCMODE, O_RDWR, e);
    }
    return rc;
}

/*
 * What the driver of NVIDIA's GPUs is asked after a context was made, through files that are open then. Its calls to the
 * control files are of type 'F', the number in the lowest byte; those to unified memory are bare numbers. The policy of
 * pages is that of memory which copies reach without a detour.
 */
static int gpu_rules(scmp_filter_ctx f, err *e) {
    static const uint8_t     control[] = { 0x27, 0x29, 0x2a, 0x2b, 0x34, 0x35, 0x4a, 0x4e, 0x4f, 0x5e,
                                           200,  201,  206,  207,  210,  212,  214,  215,  218 };
    static const uint64_t    unified[] = { 0x30000001, 0x30000002, 23, 24, 25, 26, 27, 28, 29, 30, 31, 33, 34, 37, 38,
                                           39,         42,         43, 44, 45, 46, 47, 51, 53, 65, 66, 68, 72, 73, 75 };
    static const char *const names[] = { "get_mempolicy", "set_mempolicy", "mbind" };
    int                      rc = allow_names(f, names, sizeof names / sizeof names[0], e);
    for (size_t i = 0; rc == 0 && i < sizeof control; i++)
        rc = masked(f, SCMP_ACT_ALLOW, "ioctl", 1, 0xffff, (uint64_t)'F' << 8 | control[i], e);
    if (rc == 0) rc = allow_values(f, "ioctl", 1, unified, sizeof unified / sizeof unified[0], e);
    return rc;
}

/* Signals: to itself, and no change of what SIGSYS does. */
static int signal_rules(scmp_filter_ctx f, err *e) {
    struct scmp_arg_cmp self = { 0, SCMP_CMP_EQ, (uint64_t)getpid(), 0 }, other = { 0, SCMP_CMP_NE, SIGSYS, 0 };
    int                 rc = rule(f, SCMP_ACT_ALLOW, "kill", 1, &self, e);
    if (rc == 0) rc = rule(f, SCMP_ACT_ALLOW, "tgkill", 1, &self, e);
    if (rc == 0) rc = rule(f, SCMP_ACT_ALLOW, "rt_sigaction", 1, &other, e);
    return rc;
}

static int argument_rules(scmp_filter_ctx f, err *e) {
    /* 0x53564d41: names of mappings, given by the C library's malloc */
    static const uint64_t prctls[] = { PR_SET_NAME,         PR_GET_NAME,    PR_GET_DUMPABLE,
                                       PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP, 0x53564d41 };
    static const uint64_t ioctls[] = { TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO };
    static const uint64_t fcntls[] = { F_GETFD,  F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETLK, F_SETLK,
                                       F_SETLKW, 36,      37,      38 };
    struct scmp_arg_cmp   limits[] = { { 0, SCMP_CMP_EQ, 0, 0 }, { 2, SCMP_CMP_EQ, 0, 0 } }; /* own limits, reading */
    struct scmp_arg_cmp   last[] = { { 0, SCMP_CMP_EQ, 0, 0 },
                                     { 1, SCMP_CMP_EQ, 0, 0 },
                                     { 2, SCMP_CMP_EQ, 19, 0 } }; /* this thread behind all others */
    int                   rc = allow_values(f, "prctl", 0, prctls, sizeof prctls / sizeof prctls[0], e);
    if (rc == 0) rc = allow_values(f, "ioctl", 1, ioctls, sizeof ioctls / sizeof ioctls[0], e);
    if (rc == 0) rc = allow_values(f, "fcntl", 1, fcntls, sizeof fcntls / sizeof fcntls[0], e);
    if (rc == 0) rc = rule(f, SCMP_ACT_ALLOW, "prlimit64", 2, limits, e);
    if (rc == 0) rc = rule(f, SCMP_ACT_ALLOW, "setpriority", 3, last, e);
    return rc;
}

bool sandbox_calls_known(void) {
    uint32_t action = SCMP_ACT_TRAP;
    return syscall(SYS_seccomp, GET_ACTION_AVAIL, 0, &action) == 0;
}

static void put(const char *text) {
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

/* Of the calls that an intruder, or a mistake of ours, is likely to make. */
static const char *name_of(int number) {
    static const struct {
        int         number;
        const char *name;
    } known[] = {
        { SYS_socket, "socket" },
        { SYS_socketpair, "socketpair" },
        { SYS_connect, "connect" },
        { SYS_bind, "bind" },
        { SYS_listen, "listen" },
        { SYS_accept4, "accept4" },
        { SYS_execve, "execve" },
        { SYS_execveat, "execveat" },
        { SYS_clone, "clone" },
        { SYS_ptrace, "ptrace" },
        { SYS_kill, "kill" },
        { SYS_tgkill, "tgkill" },
        { SYS_mount, "mount" },
        { SYS_unshare, "unshare" },
        { SYS_setns, "setns" },
        { SYS_prctl, "prctl" },
        { SYS_ioctl, "ioctl" },
        { SYS_fcntl, "fcntl" },
        { SYS_prlimit64, "prlimit64" },
        { SYS_rt_sigaction, "rt_sigaction" },
        { SYS_memfd_create, "memfd_create" },
        { SYS_openat, "openat" },
        { SYS_unlinkat, "unlinkat" },
        { SYS_wait4, "wait4" },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].number == number) return known[i].name;
    }
    return NULL;
}

/* Runs inside the call that was refused, so it may use next to nothing. SA_RESETHAND: the raised signal ends us. */
static void on_refused(int sig, siginfo_t *info, void *context) {
    const char *name = name_of(info->si_syscall);
    char        digits[16];
    int         at = sizeof digits - 1;
    (void)context;
    digits[at] = '\0';
    for (unsigned n = (unsigned)info->si_syscall; at > 0 && (n || at == sizeof digits - 1); n /= 10)
        digits[--at] = (char)('0' + n % 10);
    put("hearth sandbox: system call ");
    put(digits + at);
    if (name) {
        put(" (");
        put(name);
        put(")");
    }
    put(" is not allowed; the process ends\n");
    raise(sig);
}

static int catch_refused(err *e) {
    struct sigaction a = { .sa_sigaction = on_refused, .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND) };
    sigset_t         set;
    sigemptyset(&a.sa_mask);
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    if (sigaction(SIGSYS, &a, NULL) != 0 || sigprocmask(SIG_UNBLOCK, &set, NULL) != 0)
        return err_set_errno(e, "sandbox: cannot watch for SIGSYS");
    return 0;
}

static int attributes(scmp_filter_ctx f, err *e) {
    int rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0) rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    if (rc == 0) (void)seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree instead of a list, where known */
    return rc == 0
               ? 0
               : err_set(e, ERR_UNSUPPORTED, "sandbox: this kernel has no filter for all threads: %s", strerror(-rc));
}

int sandbox_calls_restrict(bool may_write, bool gpu, err *e) {
    scmp_filter_ctx f;
    int             rc;
    if (!sandbox_calls_known()) return err_set(e, ERR_UNSUPPORTED, "sandbox: this kernel cannot filter system calls");
    if ((rc = catch_refused(e)) < 0) return rc;
    if (!(f = seccomp_init(SCMP_ACT_TRAP))) return err_set_nomem(e);
    rc = attributes(f, e);
    if (rc == 0) rc = allow_names(f, always, sizeof always / sizeof always[0], e);
    if (rc == 0 && may_write) rc = allow_names(f, writing, sizeof writing / sizeof writing[0], e);
    if (rc == 0) rc = memory_rules(f, e);
    if (rc == 0) rc = thread_rules(f, e);
    if (rc == 0) rc = open_rules(f, may_write, e);
    if (rc == 0 && gpu) rc = gpu_rules(f, e);
    if (rc == 0) rc = signal_rules(f, e);
    if (rc == 0) rc = argument_rules(f, e);
    if (rc == 0) {
        int bad = seccomp_load(f);
        if (bad < 0) rc = err_set(e, ERR_UNSUPPORTED, "sandbox: the kernel refuses the filter: %s", strerror(-bad));
    }
    seccomp_release(f);
    return rc;
}
