/* SPDX-License-Identifier: Apache-2.0 */
#include "host/worker/sandbox.h"

#include "base/file.h"
#include "base/log.h"
#include "host/worker/sandbox_walls.h"

#include <dirent.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DEFAULT_FILES = 256, GPU_FILES = 1024, LANDLOCK_TCP = 4, LANDLOCK_SIGNALS = 6 };

static void note_landlock(sandbox_state *s, int version) {
    s->landlock = version;
    s->landlock_tcp = version >= LANDLOCK_TCP;
    s->landlock_signals = version >= LANDLOCK_SIGNALS;
}

void sandbox_probe(sandbox_state *can) {
    *can = (sandbox_state){ .no_new_privs = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) >= 0,
                            .filter = sandbox_calls_known(),
                            .one_thread = true };
    note_landlock(can, sandbox_files_version());
}

bool sandbox_is_complete(const sandbox_state *s) {
    return s->no_new_privs && s->filter && s->landlock > 0 && s->one_thread;
}

void sandbox_describe(const sandbox_state *s, str *out) {
    str_puts(out, s->no_new_privs ? "no new privileges" : "privileges NOT given up");
    str_puts(out, s->filter ? ", system-call filter" : ", NO system-call filter");
    if (s->landlock > 0) {
        str_printf(out, ", Landlock %d (files%s%s)", s->landlock, s->landlock_tcp ? ", TCP" : "",
                   s->landlock_signals ? ", signals" : "");
        if (!s->one_thread) str_puts(out, " NOT for threads that ran before");
    } else {
        str_puts(out, ", NO Landlock: files are not restricted to the model's paths");
    }
}

/* A limit that is lower already stays; the hard one falls too, so that nothing raises it again. */
static int lower(int which, rlim_t to, const char *what, err *e) {
    struct rlimit l;
    if (getrlimit((__rlimit_resource_t)which, &l) != 0)
        return err_set_errno(e, "sandbox: cannot read the limit of %s", what);
    if (l.rlim_max > to) l.rlim_max = to;
    if (l.rlim_cur > l.rlim_max) l.rlim_cur = l.rlim_max;
    if (setrlimit((__rlimit_resource_t)which, &l) == 0) return 0;
    return err_set_errno(e, "sandbox: cannot limit %s", what);
}

static int set_limits(const sandbox_options *o, err *e) {
    int rc = lower(RLIMIT_CORE, 0, "core files", e), files = o->gpu ? GPU_FILES : DEFAULT_FILES;
    if (rc == 0) rc = lower(RLIMIT_NOFILE, (rlim_t)(o->max_files > 0 ? o->max_files : files), "descriptors", e);
    if (rc == 0 && o->max_file_bytes) rc = lower(RLIMIT_FSIZE, (rlim_t)o->max_file_bytes, "file sizes", e);
    return rc;
}

static bool is_one_thread(void) {
#if defined(__SANITIZE_THREAD__)
    return true; /* its own thread, which opens nothing of ours */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    int  n = 0;
    DIR *d = opendir("/proc/self/task");
    if (!d) return true; /* no /proc: the caller's word counts */
    for (struct dirent *x; (x = readdir(d));) n += x->d_name[0] != '.';
    closedir(d);
    return n == 1;
}

/* A wall could not be built: an error, or a warning and 0. */
static int without(const sandbox_options *o, int rc, err *e) {
    if (o->missing == SANDBOX_REFUSE) return rc;
    log_warn("sandbox", "%s", e->msg);
    return 0;
}

/* Landlock, and what comes between it and the filter. */
static int guard_files(const sandbox_options *o, int version, err *e) {
    int last = sandbox_files_rules(o, version, false, e), first, rc;
    if (last < 0 || !o->before_filter) return last < 0 ? last : sandbox_files_restrict(last, e);
    if ((first = sandbox_files_rules(o, version, true, e)) < 0) {
        close(last);
        return first;
    }
    rc = sandbox_files_restrict(first, e);
    if (rc == 0) o->before_filter(o->ctx);
    int then = sandbox_files_restrict(last, rc == 0 ? e : NULL);
    return rc < 0 ? rc : then;
}

int sandbox_enter(const sandbox_options *o, err *e) {
    sandbox_state s = { .one_thread = is_one_thread() };
    err           why = { 0 };
    str           text;
    int           rc = 0, version = sandbox_files_version();
    if (!s.one_thread)
        rc = without(o, err_set(&why, ERR_ARG, "sandbox: other threads run already, Landlock does not hold for them"),
                     &why);
    for (size_t i = 0; rc == 0 && i < o->n_writable; i++) rc = dir_make(o->writable[i], &why);
    if (rc == 0) rc = set_limits(o, &why);
    if (rc == 0) {
        s.no_new_privs = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
        if (!s.no_new_privs) rc = without(o, err_set_errno(&why, "sandbox: cannot give up new privileges"), &why);
    }
    if (rc == 0 && version > 0)
        rc = guard_files(o, version, &why);
    else if (rc == 0)
        rc = without(o,
                     err_set(&why, ERR_UNSUPPORTED,
                             "sandbox: this kernel has no Landlock; the model's process may open any file that its "
                             "user may read"),
                     &why);
    if (rc == 0) note_landlock(&s, version);
    if (rc == 0 && version == 0 && o->before_filter) o->before_filter(o->ctx);
    if (rc == 0) {
        int bad = sandbox_calls_restrict(o->n_writable > 0, o->gpu, &why);
        s.filter = bad == 0;
        if (bad < 0) rc = without(o, bad, &why);
    }
    if (o->held) *o->held = s;
    if (rc < 0) return err_set(e, rc, "%s", why.msg);
    str_init(&text);
    sandbox_describe(&s, &text);
    log_write(sandbox_is_complete(&s) ? LOG_INFO : LOG_WARN, "sandbox", "%s", str_cstr(&text));
    str_deinit(&text);
    return 0;
}
