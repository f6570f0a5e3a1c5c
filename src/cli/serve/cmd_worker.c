/* SPDX-License-Identifier: Apache-2.0 */
/* hearth worker: what `hearth serve` starts for every model it loads, and for every picture and sound; of no use to a person. Its socket is descriptor
 * 3, its log goes to the server, which adds time and model. */
#include "cli/cli.h"
#include "host/decoder/decoder.h"
#include "host/worker/worker.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOCKET = 3 };

/* Level, tab, module, tab, text. A line that the pipe has no room for is lost rather than waited for. */
static void log_to_parent(void *ctx, const log_record *r) {
    str line;
    (void)ctx;
    str_init(&line);
    str_printf(&line, "%d\t%s\t%s\n", (int)r->level, r->module, r->message);
    if (str_ok(&line)) (void)!write(STDERR_FILENO, line.data, line.len);
    str_deinit(&line);
}

static int run(const cli_args *args) {
    int       kind = 0;
    socklen_t n = sizeof kind;
    err       e = { 0 };
    if (getsockopt(SOCKET, SOL_SOCKET, SO_TYPE, &kind, &n) != 0 || kind != SOCK_STREAM)
        return cli_usage_error(args, "this command is started by hearth serve");
    fcntl(SOCKET, F_SETFD, FD_CLOEXEC);
    (void)syscall(SYS_close_range, SOCKET + 1, ~0U, 0U);
    bool hear = cli_flag(args, "sound");
    if (hear || cli_flag(args, "picture")) _exit(decoder_run(SOCKET, hear, cli_flag(args, "no-sandbox")));
    fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    log_set_sink(log_to_parent, NULL, LOG_WARN);
    int code = worker_run(SOCKET, (long)cli_int(args, "parent", 0), &e);
    if (code >= 0) _exit(code); /* as sandbox.h wants it */
    log_error("worker", "%s", e.msg);
    _exit(3); /* its threads may still run */
}

static const cli_option options[] = {
    { "parent", CLI_INT, "PID", "process id of the server; the worker ends with the server", 0 },
    { "picture", CLI_FLAG, NULL, "decode one picture and end", 0 },
    { "sound", CLI_FLAG, NULL, "decode one sound and end", 0 },
    { "no-sandbox", CLI_FLAG, NULL, "with --picture or --sound: decode without the sandbox", 0 },
    { 0 },
};

const cli_command cli_cmd_worker = {
    "worker", "--parent PID", "Run one loaded model for 'hearth serve', which starts this command.", options, 0, 0, run
};
