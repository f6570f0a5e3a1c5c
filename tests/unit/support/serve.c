/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/serve.h"

#include "unit/support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void serve_isolate(const char *dir) {
    setenv("HOME", dir, 1);
    setenv("XDG_RUNTIME_DIR", dir, 1);
    setenv("XDG_DATA_HOME", dir, 1);
    setenv("XDG_STATE_HOME", dir, 1);
    setenv("XDG_CONFIG_HOME", dir, 1);
    setenv("XDG_CACHE_HOME", dir, 1);
    unsetenv("HEARTH_HOST");
    unsetenv("HEARTH_API_KEY");
}

void serve_start(serve_process *s, const char *dir, const char *options) {
    const char *program = getenv("HEARTH_PROGRAM");
    char        command[1024], line[1024] = "";
    int         out[2];
    if (!program || !*program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        skip();
    }
    assert_true(snprintf(s->socket, sizeof s->socket, "%s/hearth.sock", dir) < (int)sizeof s->socket);
    snprintf(command, sizeof command, "exec '%s' serve --port 0 --ready-json --log-level warn %s", program, options);
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    assert_non_null(f);
    const char *port = fgets(line, sizeof line, f) ? strstr(line, "\"port\":") : NULL;
    fclose(f);
    if (!port) fail_msg("the server did not start: %s", line);
    s->port = atoi(port + 7);
}

void serve_stop(serve_process *s) {
    int status;
    kill(s->pid, SIGTERM);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    assert_int_equal(status, 0);
}
