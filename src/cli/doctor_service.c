/* SPDX-License-Identifier: Apache-2.0 */
/* What runs: the server of this user, what answers on its port, and the demo model. */
#include "base/file.h"
#include "base/json.h"
#include "cli/doctor.h"
#include "cli/run/once.h"
#include "cli/serve/client.h"
#include "hearth.h"
#include "runtime/demo.h"

#include <stdlib.h>
#include <string.h>

/* The version in an answer of /health; false: that is not a Hearth. */
static bool read_version(const str *body, char *out, size_t room) {
    const json_value *v;
    arena             a;
    bool              yes = false;
    arena_init(&a, 1 << 20);
    if (body->len && json_parse(&v, body->data, body->len, &a, NULL) == 0) {
        const char *text = json_cstr(json_get(v, "version"));
        yes = text && json_cstr(json_get(v, "status")) && strlen(text) < room;
        if (yes) memcpy(out, text, strlen(text) + 1);
    }
    arena_deinit(&a);
    return yes;
}

void doctor_server(doctor *d) {
    client *c = NULL;
    str     body;
    err     e = { 0 };
    int     status = 0;
    char    version[64] = "";
    str_init(&body);
    int rc = client_open(&c, d->args, &e);
    if (rc == 0) rc = client_ask(c, "/health", NULL, &body, &status, &e);
    if (rc == ERR_NOTFOUND) {
        doctor_say(d, "server", DOCTOR_OK, NULL, "no server is running, and its port is free");
    } else if (rc < 0) {
        doctor_say(d, "server", DOCTOR_WARN,
                   "if another program uses that port, give 'hearth serve' another one with --port", "%s", e.msg);
    } else if (status == 401 || status == 403) {
        doctor_say(d, "server", DOCTOR_WARN, "set HEARTH_API_KEY", "the server at %s requires a key", client_where(c));
    } else if (!read_version(&body, version, sizeof version)) {
        doctor_say(d, "server", DOCTOR_WARN, "end that program, or give 'hearth serve' another port with --port",
                   "another program answers at %s", client_where(c));
    } else if (strcmp(version, hearth_version()) != 0) {
        doctor_say(d, "server", DOCTOR_WARN, "restart the server",
                   "Hearth %.40s is running at %s, but this program is version %s", version, client_where(c),
                   hearth_version());
    } else {
        doctor_say(d, "server", status == 200 ? DOCTOR_OK : DOCTOR_WARN,
                   status == 200 ? NULL : "wait, or read the server's log", "Hearth %.40s is running at %s%s", version,
                   client_where(c), status == 200 ? "" : ", but it is not ready (loading or draining)");
    }
    client_free(c);
    str_deinit(&body);
}

void doctor_demo(doctor *d) {
    static const char question[] = "[{\"role\":\"user\",\"content\":\"What is 12 plus 30?\"}]", want[] = "42";
    runtime_request   q;
    runtime_usage     u = { 0 };
    runtime          *r = NULL;
    char             *path = NULL;
    str               text;
    err               e = { 0 };
    str_init(&text);
    int rc = runtime_demo_path(&path, RUNTIME_DEMO, &e);
    if (rc == 0) rc = runtime_open(&r, &(runtime_options){ .path = path }, &e);
    if (rc == 0) {
        runtime_request_init(&q);
        q.task = RUNTIME_CHAT;
        q.messages = view_of(question);
        q.thinking = RUNTIME_THINK_OFF;
        q.max_tokens = 32;
        q.sampling.temperature = 0;
        q.sampling_set = RUNTIME_SET_TEMPERATURE;
        rc = once_ask(r, &q, &text, &u, &e);
    }
    if (rc < 0)
        doctor_say(d, "demo", DOCTOR_BROKEN,
                   "install the package hearth-demo, or Hearth again: models/demo/demo.gguf belongs beside the program",
                   "%s", e.msg);
    else if (!strstr(str_cstr(&text), want))
        doctor_say(d, "demo", DOCTOR_BROKEN,
                   "compare the answer with 'hearth run demo' on another machine and report the difference",
                   "asked for 12 plus 30, the demo model answers '%.60s'", str_cstr(&text));
    else
        doctor_say(d, "demo", DOCTOR_OK, NULL, "asked for 12 plus 30, the demo model answers '%.60s' at %.0f tokens/s",
                   str_cstr(&text), u.generate_s > 0 ? (u.generated_tokens - 1) / u.generate_s : 0);
    runtime_free(r);
    free(path);
    str_deinit(&text);
}
