/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program behind the walls that systemd builds for a unit, where systemd itself does not run: no new privileges, no
 * capabilities, another user, and the same filters of system calls, as systemd.exec(5) describes them.
 *
 *     enclose CALLS FAMILIES UID PROGRAM ...
 *
 * CALLS is a file with the name of an allowed call per line (the others fail with EPERM), FAMILIES the allowed address families
 * as numbers with commas; UID of -1 changes nobody. MemoryDenyWriteExecute, RestrictNamespaces, RestrictRealtime,
 * RestrictSUIDSGID and LockPersonality hold always.
 */
#include <errno.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *what) {
    fprintf(stderr, "enclose: %s: %s\n", what, strerror(errno));
    exit(99);
}

static void must(int rc, const char *what) {
    if (rc == 0) return;
    errno = rc < 0 ? -rc : rc;
    die(what);
}

/* Each of systemd's restrictions is a filter of its own: the strictest answer wins. */
static void load(scmp_filter_ctx filter) {
    must(seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0), "seccomp_attr_set");
    must(seccomp_load(filter), "seccomp_load");
    seccomp_release(filter);
}

static scmp_filter_ctx allow_all(void) {
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    if (!f) die("seccomp_init");
    return f;
}

static void allow_listed(const char *path) {
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    FILE           *in = fopen(path, "r");
    char            name[100];
    int             n = 0;
    if (!f || !in) die(path);
    while (fscanf(in, "%99s", name) == 1) {
        int call = seccomp_syscall_resolve_name(name);
        if (call == __NR_SCMP_ERROR || call < 0) continue; /* of another machine */
        must(seccomp_rule_add(f, SCMP_ACT_ALLOW, call, 0), name);
        n++;
    }
    fclose(in);
    if (n < 100) {
        errno = EINVAL;
        die(path);
    }
    load(f);
}

static void deny_families(const char *list) {
    scmp_filter_ctx f = allow_all();
    bool            allowed[AF_MAX] = { false };
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int family = atoi(at);
        if (family > 0 && family < AF_MAX) allowed[family] = true;
    }
    for (unsigned i = 0; i < AF_MAX; i++) {
        if (allowed[i]) continue;
        must(seccomp_rule_add(f, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, i, 0)),
             "socket");
    }
    must(seccomp_rule_add(f, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_GE, AF_MAX, 0)),
         "socket");
    load(f);
}

static void deny_code(void) {
    scmp_filter_ctx f = allow_all();
    uint32_t        no = SCMP_ACT_ERRNO(EPERM);
    must(seccomp_rule_add(f, no, SCMP_SYS(mmap), 1,
                          SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC | PROT_WRITE, PROT_EXEC | PROT_WRITE)),
         "mmap");
    must(seccomp_rule_add(f, no, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC)), "mprotect");
    must(seccomp_rule_add(f, no, SCMP_SYS(pkey_mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC)),
         "pkey_mprotect");
    must(seccomp_rule_add(f, no, SCMP_SYS(shmat), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, SHM_EXEC, SHM_EXEC)), "shmat");
    load(f);
}

static void deny_namespaces(void) {
    static const uint64_t spaces[] = { CLONE_NEWCGROUP, CLONE_NEWIPC,  CLONE_NEWNET, CLONE_NEWNS,
                                       CLONE_NEWPID,    CLONE_NEWUSER, CLONE_NEWUTS };
    scmp_filter_ctx       f = allow_all();
    uint32_t              no = SCMP_ACT_ERRNO(EPERM);
    must(seccomp_rule_add(f, no, SCMP_SYS(setns), 0), "setns");
    must(seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0), "clone3"); /* its flags cannot be seen */
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        struct scmp_arg_cmp has = SCMP_A0(SCMP_CMP_MASKED_EQ, spaces[i], spaces[i]);
        must(seccomp_rule_add(f, no, SCMP_SYS(clone), 1, has), "clone");
        must(seccomp_rule_add(f, no, SCMP_SYS(unshare), 1, has), "unshare");
    }
    load(f);
}

static void deny_rest(void) {
    static const int bits[] = { S_ISUID, S_ISGID }, real[] = { SCHED_FIFO, SCHED_RR };
    scmp_filter_ctx  f = allow_all();
    uint32_t         no = SCMP_ACT_ERRNO(EPERM);
    must(seccomp_rule_add(f, no, SCMP_SYS(personality), 1, SCMP_A0(SCMP_CMP_NE, 0, 0)), "personality");
    for (size_t i = 0; i < 2; i++) {
        scmp_datum_t bit = (scmp_datum_t)bits[i];
        must(seccomp_rule_add(f, no, SCMP_SYS(sched_setscheduler), 1, SCMP_A1(SCMP_CMP_EQ, (scmp_datum_t)real[i], 0)),
             "sched_setscheduler");
        must(seccomp_rule_add(f, no, SCMP_SYS(chmod), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, bit, bit)), "chmod");
        must(seccomp_rule_add(f, no, SCMP_SYS(fchmod), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, bit, bit)), "fchmod");
        must(seccomp_rule_add(f, no, SCMP_SYS(fchmodat), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, bit, bit)), "fchmodat");
        must(seccomp_rule_add(f, no, SCMP_SYS(mkdir), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, bit, bit)), "mkdir");
    }
    load(f);
}

int main(int argc, char **argv) {
    if (argc < 5) return fprintf(stderr, "usage: enclose CALLS FAMILIES UID PROGRAM ...\n"), 2;
    long uid = atol(argv[3]);
    if (uid >= 0 && (setgroups(0, NULL) != 0 || setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) != 0 ||
                     setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) != 0))
        die("changing the user");
    umask(077);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) die("no new privileges");
    deny_families(argv[2]);
    deny_code();
    deny_namespaces();
    deny_rest();
    allow_listed(argv[1]); /* the last one: it may refuse to load others */
    execv(argv[4], argv + 4);
    die(argv[4]);
}
