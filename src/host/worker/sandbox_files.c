/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox's files: Landlock by its system calls, because the C library has no functions for them.
 *
 * A rule belongs to a file or to everything below a directory, as its descriptor names it: a link is followed once,
 * here. The process cannot open what a link in a readable directory leads to unless a rule names the target, so targets
 * get rules of their own. The numbers below are the kernel's; headers of older systems lack the newer ones.
 */
#include "host/worker/sandbox_walls.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALL_CREATE = 444, CALL_ADD_RULE = 445, CALL_RESTRICT_SELF = 446 }; /* the same on every architecture */
enum { CREATE_VERSION = 1, RULE_PATH_BENEATH = 1 };
enum { MAX_LINKS = 100000 };

#define FS_WRITE_FILE (UINT64_C(1) << 1)
#define FS_READ_FILE (UINT64_C(1) << 2)
#define FS_READ_DIR (UINT64_C(1) << 3)
#define FS_REMOVE_DIR (UINT64_C(1) << 4)
#define FS_REMOVE_FILE (UINT64_C(1) << 5)
#define FS_MAKE_DIR (UINT64_C(1) << 7)
#define FS_MAKE_REG (UINT64_C(1) << 8)
#define FS_REFER (UINT64_C(1) << 13)
#define FS_TRUNCATE (UINT64_C(1) << 14)
#define FS_IOCTL_DEV (UINT64_C(1) << 15)
#define NET_ALL (UINT64_C(3))   /* bind and connect of TCP */
#define SCOPE_ALL (UINT64_C(3)) /* abstract Unix sockets, signals */

typedef struct ruleset_attr {
    uint64_t handled_fs, handled_net, scoped;
} ruleset_attr;

typedef struct path_attr {
    uint64_t allowed;
    int32_t  parent;
} __attribute__((packed)) path_attr;

typedef struct rules {
    int      fd;
    uint64_t handled;
} rules;

int sandbox_files_version(void) {
    long n = syscall(CALL_CREATE, NULL, 0, CREATE_VERSION);
    return n > 0 ? (int)n : 0;
}

static int allow_fd(const rules *r, int fd, const char *path, uint64_t rights, err *e) {
    path_attr   a = { .parent = fd };
    struct stat st;
    if (fstat(fd, &st) != 0) return err_set_errno(e, "sandbox: cannot look at %s", path);
    /* Rights of directories are an error on a file. */
    if (!S_ISDIR(st.st_mode)) rights &= FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV;
    a.allowed = rights & r->handled;
    if (syscall(CALL_ADD_RULE, r->fd, RULE_PATH_BENEATH, &a, 0) == 0) return 0;
    return err_set_errno(e, "sandbox: cannot make a rule for %s", path);
}

static int allow(const rules *r, const char *path, uint64_t rights, err *e) {
    int fd = open(path, O_PATH | O_CLOEXEC), rc;
    if (fd < 0) return err_set_errno(e, "sandbox: cannot open %s", path);
    rc = allow_fd(r, fd, path, rights, e);
    close(fd);
    return rc;
}

/* A system file that may be missing: not opened, not allowed. */
static int allow_if_there(const rules *r, const char *path, err *e) {
    return access(path, F_OK) == 0 ? allow(r, path, FS_READ_FILE | FS_READ_DIR, e) : 0;
}

typedef bool (*wanted)(const char *name, const char *model);

/* Rules for the regular files that the wanted names in dir are or lead to. */
static int allow_files(const rules *r, const char *dir, wanted want, const char *model, err *e) {
    DIR *d = opendir(dir);
    int  rc = 0, n = 0;
    if (!d) return err_set_errno(e, "sandbox: cannot open %s", dir);
    for (struct dirent *x; rc == 0 && (x = readdir(d));) {
        struct stat st;
        if (!want(x->d_name, model) || fstatat(dirfd(d), x->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode)) continue;
        if (++n > MAX_LINKS) {
            rc = err_set(e, ERR_LIMIT, "sandbox: %s holds more than %d files", dir, MAX_LINKS);
            break;
        }
        int fd = openat(dirfd(d), x->d_name, O_PATH | O_CLOEXEC);
        if (fd < 0) continue; /* gone */
        rc = allow_fd(r, fd, x->d_name, FS_READ_FILE, e);
        close(fd);
    }
    closedir(d);
    return rc;
}

static bool want_all(const char *name, const char *model) {
    (void)model;
    return name[0] != '.';
}

/* Beside a safetensors file: what a model directory consists of. */
static bool want_sidecar(const char *name, const char *model) {
    static const char *const ends[] = { ".json", ".safetensors", ".model", ".jinja", ".txt", ".tiktoken" };
    (void)model;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (view_ends(view_of(name), ends[i])) return true;
    }
    return false;
}

/* x-00002-of-00003.gguf beside x-00001-of-00003.gguf: the same but for the digits of the first number. */
static bool want_part(const char *name, const char *model) {
    enum { TAIL = 20, NUMBER = 5 }; /* -00001-of-00003.gguf */
    size_t len = strlen(model);
    if (len <= TAIL || strlen(name) != len || strncmp(model + len - TAIL + 6, "-of-", 4) != 0) return false;
    size_t from = len - TAIL + 1;
    return memcmp(name, model, from) == 0 && strcmp(name + from + NUMBER, model + from + NUMBER) == 0;
}

static bool is_gguf(const char *path) {
    char magic[4] = "";
    int  fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool yes = fd >= 0 && read(fd, magic, 4) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (fd >= 0) close(fd);
    return yes;
}

static int allow_model(const rules *r, const char *path, err *e) {
    int rc = allow(r, path, FS_READ_FILE | FS_READ_DIR, e);
    if (rc < 0) return rc;
    if (dir_exists(path)) return allow_files(r, path, want_all, NULL, e);
    char *one = strdup(path), *two = strdup(path);
    if (!one || !two)
        rc = err_set_nomem(e);
    else
        rc = allow_files(r, dirname(one), is_gguf(path) ? want_part : want_sidecar, basename(two), e);
    free(one);
    free(two);
    return rc;
}

/* NVIDIA's, while it starts: the device files with what can be asked of them, the driver's libraries and tables read-only,
 * and the names of its threads, without which it gives up. */
static int allow_gpu(const rules *r, err *e) {
    static const char *const paths[] = { "/lib",
                                         "/lib64",
                                         "/usr/lib",
                                         "/usr/lib64",
                                         "/usr/local/lib",
                                         "/usr/local/nvidia",
                                         "/usr/local/cuda",
                                         "/etc/ld.so.cache",
                                         "/etc/nvidia",
                                         "/usr/share/nvidia",
                                         "/proc/driver/nvidia",
                                         "/proc/devices",
                                         "/proc/cpuinfo",
                                         "/proc/sys/vm",
                                         "/sys/bus/pci",
                                         "/sys/devices" };
    const uint64_t           device = FS_READ_FILE | FS_WRITE_FILE | FS_READ_DIR | FS_IOCTL_DEV;
    int                      rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof paths / sizeof paths[0]; i++) rc = allow_if_there(r, paths[i], e);
    if (rc == 0) rc = allow(r, "/proc/self/task", FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE, e);
    DIR *d = opendir("/dev");
    if (!d) return err_set_errno(e, "sandbox: cannot open /dev");
    for (struct dirent *x; rc == 0 && (x = readdir(d));) {
        if (strncmp(x->d_name, "nvidia", 6) != 0) continue;
        int fd = openat(dirfd(d), x->d_name, O_PATH | O_CLOEXEC);
        if (fd < 0) continue; /* gone */
        rc = allow_fd(r, fd, x->d_name, device, e);
        close(fd);
    }
    closedir(d);
    return rc;
}

static int allow_all(const rules *r, const sandbox_options *o, bool starts, err *e) {
    /* The number of cores and which of them are siblings; the C library's look at its own stack and at memory. */
    static const char *const system_paths[] = { "/sys/devices/system/cpu", "/proc/self", "/proc/meminfo",
                                                "/proc/stat" };
    const uint64_t all = FS_WRITE_FILE | FS_READ_FILE | FS_READ_DIR | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR |
                         FS_MAKE_REG | FS_REFER | FS_TRUNCATE;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof system_paths / sizeof system_paths[0]; i++)
        rc = allow_if_there(r, system_paths[i], e);
    if (rc == 0 && o->gpu && starts) rc = allow_gpu(r, e);
    for (size_t i = 0; rc == 0 && i < o->n_readable; i++) rc = allow_model(r, o->readable[i], e);
    for (size_t i = 0; rc == 0 && i < o->n_writable; i++) rc = allow(r, o->writable[i], all, e);
    return rc;
}

int sandbox_files_rules(const sandbox_options *o, int version, bool starts, err *e) {
    enum { FIRST = 13 }; /* rights of version 1: bits 0 to 12 */
    uint64_t handled = (UINT64_C(1) << FIRST) - 1;
    if (version >= 2) handled |= FS_REFER;
    if (version >= 3) handled |= FS_TRUNCATE;
    if (version >= 5) handled |= FS_IOCTL_DEV;
    ruleset_attr a = { handled, version >= 4 ? NET_ALL : 0, version >= 6 ? SCOPE_ALL : 0 };
    size_t       bytes = version >= 6 ? sizeof a : version >= 4 ? 16 : 8;
    rules        r = { (int)syscall(CALL_CREATE, &a, bytes, 0), handled };
    if (r.fd < 0) return err_set_errno(e, "sandbox: Landlock makes no rules");
    int rc = allow_all(&r, o, starts, e);
    if (rc == 0) return r.fd;
    close(r.fd);
    return rc;
}

int sandbox_files_restrict(int made, err *e) {
    int rc = 0;
    if (syscall(CALL_RESTRICT_SELF, made, 0) != 0) rc = err_set_errno(e, "sandbox: Landlock does not hold");
    close(made);
    return rc;
}
