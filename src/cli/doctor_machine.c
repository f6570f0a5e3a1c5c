/* SPDX-License-Identifier: Apache-2.0 */
/* The machine: processor, memory, limits, what the kernel has for the sandbox. */
#include "base/file.h"
#include "base/machine.h"
#include "base/pool.h"
#include "cli/doctor.h"
#include "cli/settings.h"
#include "host/worker/sandbox.h"
#include "kernels/kernels.h"
#include "runtime/need.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- processor --- */

typedef struct slots {
    int all, plain;
} slots;

static void count_slot(void *ctx, const char *slot, const char *set) {
    slots *s = ctx;
    (void)slot;
    s->all++;
    s->plain += strcmp(set, "scalar") == 0;
}

/* A quota of the control group, in cores; 0: none. */
static double cpu_quota(void) {
    char   line[1024], path[1200], text[64] = "";
    FILE  *f = fopen("/proc/self/cgroup", "re");
    double quota = 0, period = 0;
    if (!f) return 0;
    path[0] = '\0';
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) == 0) snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", line + 3);
    }
    fclose(f);
    if (!path[0] || !(f = fopen(path, "re"))) return 0;
    if (fgets(text, sizeof text, f) && sscanf(text, "%lf %lf", &quota, &period) != 2) quota = 0; /* "max 100000" */
    fclose(f);
    return period > 0 ? quota / period : 0;
}

void doctor_cpu(doctor *d) {
    char    text[160], sets[128];
    kernels k;
    slots   s = { 0 };
    int     cores = pool_default_threads();
    long    online = sysconf(_SC_NPROCESSORS_ONLN);
    double  quota = cpu_quota();
    cpu_describe(text, sizeof text);
    kernels_init(&k, cpu_detect());
    kernels_list(&k, count_slot, &s);
    cpu_names(k.cpu, sets, sizeof sets);
    if (k.cpu == 0)
        doctor_say(d, "cpu", DOCTOR_WARN, "a processor with AVX2 or NEON is many times faster",
                   "%s: there are no kernels for its instruction sets, so plain C does the work", text);
    else
        doctor_say(d, "cpu", DOCTOR_OK, NULL, "%s; %d of %d kernels use %s", text, s.all - s.plain, s.all, sets);
    if (quota > 0 && quota < cores)
        doctor_say(d, "threads", DOCTOR_WARN, "run with --threads of that number, or raise the quota (cpu.max)",
                   "%d cores, but the control group may use %.1f: threads will wait for each other", cores, quota);
    else
        doctor_say(d, "threads", DOCTOR_OK, NULL, "%d cores for this process (%ld hardware threads in the machine)",
                   cores, online);
}

/* --- memory --- */

void doctor_memory(doctor *d) {
    const char    *from = NULL;
    uint64_t       available = machine_memory_available(&from);
    struct sysinfo i;
    char           a[32], b[32], thp[128] = "";
    double         total = sysinfo(&i) == 0 ? (double)i.totalram * i.mem_unit : 0;
    doctor_bytes(a, (double)available);
    doctor_bytes(b, total);
    if (available == 0)
        doctor_say(d, "memory", DOCTOR_WARN, "check whether /proc is mounted",
                   "the amount of available memory is not known");
    else if (available < (uint64_t)1 << 30)
        doctor_say(d, "memory", DOCTOR_WARN, "end other programs, or choose a small model ('hearth info MODEL')",
                   "%s available%s, %s in the machine", a, strcmp(from, "cgroup") == 0 ? " in this control group" : "",
                   b);
    else
        doctor_say(d, "memory", DOCTOR_OK, NULL, "%s available%s, %s in the machine", a,
                   strcmp(from, "cgroup") == 0 ? " in this control group" : "", b);
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (f) {
        if (!fgets(thp, sizeof thp, f)) thp[0] = '\0';
        fclose(f);
    }
    if (strstr(thp, "[never]"))
        doctor_say(d, "pages", DOCTOR_WARN, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
                   "transparent huge pages are switched off; large models lose some speed");
    else
        doctor_say(d, "pages", DOCTOR_OK, NULL, "transparent huge pages: %s",
                   strstr(thp, "[always]")    ? "always"
                   : strstr(thp, "[madvise]") ? "where asked for"
                                              : "this kernel does not say");
}

/* --- limits --- */

void doctor_limits(doctor *d) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return;
    if (l.rlim_max < 1024)
        doctor_say(d, "limits", DOCTOR_WARN, "raise it: ulimit -n 4096, or LimitNOFILE= of the service",
                   "%llu open files at most; a server needs one per connection", (unsigned long long)l.rlim_max);
    else
        doctor_say(d, "limits", DOCTOR_OK, NULL, "%llu open files, up to %llu", (unsigned long long)l.rlim_cur,
                   (unsigned long long)l.rlim_max);
}

/* --- the sandbox --- */

/* In a child: enters it without any path and tries what must not work. Bits of the exit status: 1 a file was opened, 2
 * it could not be entered. A socket must end it with SIGSYS. */
static void try_inside(void) {
    sandbox_options o = { .missing = SANDBOX_WARN };
    err             e = { 0 };
    int             null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDERR_FILENO);
    log_set_level(LOG_OFF);
    if (sandbox_enter(&o, &e) < 0) _exit(2);
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) _exit(1);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    _exit(fd >= 0 ? 4 : 0);
}

void doctor_sandbox(doctor *d) {
    static const char remedy[] =
        "models still run, but less isolated; the whole sandbox needs Linux 5.13 or later with seccomp and Landlock";
    sandbox_state can;
    str           text;
    int           status = 0;
    arena         mem;
    config_values v;
    str_init(&text);
    sandbox_probe(&can);
    sandbox_describe(&can, &text);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) try_inside();
    bool ran = pid > 0 && waitpid(pid, &status, 0) == pid;
    if (!ran)
        doctor_say(d, "sandbox", DOCTOR_BROKEN, "check whether too many processes are running",
                   "cannot start a child process: %s", strerror(errno));
    else if (!sandbox_is_complete(&can))
        doctor_say(d, "sandbox", DOCTOR_WARN, remedy, "%s", str_cstr(&text));
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        doctor_say(d, "sandbox", DOCTOR_OK, NULL, "%s; in a test, access to a file and a socket was refused",
                   str_cstr(&text));
    else
        doctor_say(d, "sandbox", DOCTOR_BROKEN, "report this with the kernel's version (uname -a)",
                   "%s, but a child process %s", str_cstr(&text),
                   WIFEXITED(status) && WEXITSTATUS(status) == 2 ? "could not enter the sandbox"
                                                                 : "was not stopped by the sandbox");
    str_deinit(&text);
    arena_init(&mem, 0);
    if (settings_peek(&v, &mem, NULL) == 0 && !config_bool(&v, "security.sandbox"))
        doctor_say(d, "sandbox", DOCTOR_WARN,
                   "remove security.sandbox from server.yaml and HEARTH_SANDBOX from the environment",
                   "the sandbox is switched off: models may do everything that this user may do");
    arena_deinit(&mem);
}
