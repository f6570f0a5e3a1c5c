/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the running server, for commands that ask it something.
 *
 * Where it is: --socket PATH, else --host (or HEARTH_HOST: "name", "name:port", a URL), else where `hearth serve`
 * listens as server.yaml and the environment say: its Unix socket ($XDG_RUNTIME_DIR/hearth.sock), then TCP
 * (127.0.0.1:11434). The key: --api-key, HEARTH_API_KEY, else, on this machine only, the owner's capability token.
 */
#ifndef CLI_SERVE_CLIENT_H
#define CLI_SERVE_CLIENT_H

#include "base/str.h"
#include "cli/cli.h"

/* Rows for a command's table of options. */
#define CLIENT_OPTIONS                                                                                                 \
    { "host", CLI_STRING, "ADDRESS", "address of the server, as name:port or URL (HEARTH_HOST)", 0 },                  \
        { "socket", CLI_STRING, "PATH", "Unix socket of the server ($XDG_RUNTIME_DIR/hearth.sock, then TCP)", 0 }, {   \
        "api-key", CLI_STRING, "KEY", "key for the server (HEARTH_API_KEY)", 0                                         \
    }

typedef struct client client;

int  client_open(client **out, const cli_args *a, err *e);
void client_free(client *c); /* accepts NULL */

/*
 * One request; body NULL: a GET, else a POST of JSON. The answer's body is in *out (cleared first) and its status in
 * *status. ERR_NOTFOUND: no server answers there, with a sentence that says where it was looked for.
 */
int client_ask(client *c, const char *path, const char *body, str *out, int *status, err *e);

/* The same for answers that must be 200: another status is an error with the server's own sentence. */
int client_get(client *c, const char *path, const char *body, str *out, err *e);

const char *client_where(const client *c); /* that answered last: "unix:/run/...", "http://127.0.0.1:11434" */

#endif
