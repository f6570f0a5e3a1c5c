/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: is everything on this machine as it should be, and what to do where it is not. */
#include "backend/backend.h"
#include "cli/doctor.h"
#include "cli/options.h"
#include "formats/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *doctor_bytes(char out[32], double bytes) {
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB" };
    size_t                   u = 0;
    while (bytes >= 1000 && u + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1000;
        u++;
    }
    snprintf(out, 32, u < 2 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
    return out;
}

static void put_json(doctor *d, const char *check, const char *status, const char *text, const char *remedy) {
    str_printf(&d->out, "%s{\"check\":\"%s\",\"status\":\"%s\",\"message\":", d->n ? ",\n" : "", check, status);
    str_put_json(&d->out, text, strlen(text));
    str_puts(&d->out, ",\"remedy\":");
    if (remedy)
        str_put_json(&d->out, remedy, strlen(remedy));
    else
        str_puts(&d->out, "null");
    str_push(&d->out, '}');
}

void doctor_say(doctor *d, const char *check, doctor_status status, const char *remedy, const char *fmt, ...) {
    static const char *const names[] = { "ok", "warning", "broken" };
    char                     text[1024];
    va_list                  ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (d->json) {
        put_json(d, check, names[status], text, remedy);
    } else {
        /* Names of files and of models come from elsewhere: no control characters reach the terminal. */
        str_printf(&d->out, "%-8s %-9s ", names[status], check);
        text_put_safe(&d->out, view_of(text));
        str_push(&d->out, '\n');
        if (remedy) {
            str_puts(&d->out, "                   -> ");
            text_put_safe(&d->out, view_of(remedy));
            str_push(&d->out, '\n');
        }
        fputs(str_cstr(&d->out), stdout);
        fflush(stdout);
        str_clear(&d->out);
    }
    d->n++;
    d->n_of[status]++;
}

static void gpu(doctor *d) {
    nn_device devices[NN_MAX_DEVICES];
    char      size[32];
    int       found = 0;
    for (int i = 0, n = backend_devices(devices, NN_MAX_DEVICES); i < n; i++) {
        if (devices[i].kind != NN_DEVICE_GPU) continue;
        doctor_say(d, "gpu", DOCTOR_OK, NULL, "%s: %s, %s", devices[i].id, devices[i].name,
                   doctor_bytes(size, (double)devices[i].total_bytes));
        found++;
    }
    if (found) return;
    err e = { 0 };
    if (!backend_has_driver(NULL))
        doctor_say(d, "gpu", DOCTOR_OK, NULL, "this build can use none: models run on the CPU");
    else if (backend_prepare(NULL, &e) < 0)
        doctor_say(d, "gpu", DOCTOR_OK, NULL, "%s: models run on the CPU", e.msg[0] ? e.msg : "none");
}

void doctor_report(void *unused, str *out) {
    static void (*const checks[])(doctor *) = { doctor_cpu,      doctor_memory,  gpu,
                                                doctor_limits,   doctor_sandbox, doctor_paths,
                                                doctor_registry, doctor_config,  doctor_demo };
    doctor d = { .json = true };
    (void)unused;
    str_init(&d.out);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) checks[i](&d);
    str_printf(out, "{\"checks\":[%s],\"ok\":%d,\"warnings\":%d,\"broken\":%d}", str_cstr(&d.out), d.n_of[DOCTOR_OK],
               d.n_of[DOCTOR_WARN], d.n_of[DOCTOR_BROKEN]);
    str_deinit(&d.out);
}

static int run(const cli_args *a) {
    static void (*const checks[])(
        doctor *) = { doctor_cpu,   doctor_memory,   gpu,           doctor_limits, doctor_sandbox,
                      doctor_paths, doctor_registry, doctor_config, doctor_server, doctor_demo };
    doctor d = { .args = a, .json = cli_flag(a, "json") };
    str_init(&d.out);
    if (d.json) fputs("{\"checks\":[\n", stdout);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) checks[i](&d);
    if (d.json)
        printf("%s\n],\"ok\":%d,\"warnings\":%d,\"broken\":%d}\n", str_cstr(&d.out), d.n_of[DOCTOR_OK],
               d.n_of[DOCTOR_WARN], d.n_of[DOCTOR_BROKEN]);
    else
        printf("\n%d ok, %d warning%s, %d broken\n", d.n_of[DOCTOR_OK], d.n_of[DOCTOR_WARN],
               d.n_of[DOCTOR_WARN] == 1 ? "" : "s", d.n_of[DOCTOR_BROKEN]);
    str_deinit(&d.out);
    return d.n_of[DOCTOR_BROKEN] ? CLI_FAILED : CLI_OK;
}

static const cli_option options[] = {
    CLI_JSON_OPTION,
    { 0 },
};

const cli_command cli_cmd_doctor = {
    "doctor", "[--json]", "Check this machine, the installation and the running server.", options, 0, 0, run,
};
