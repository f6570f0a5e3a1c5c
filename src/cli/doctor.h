/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth doctor: each check says one or more findings. A finding is in order, worth a warning, or broken; the last two
 * come with a remedy. Checks look and do not repair.
 */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "base/str.h"
#include "cli/cli.h"

typedef enum doctor_status { DOCTOR_OK, DOCTOR_WARN, DOCTOR_BROKEN } doctor_status;

typedef struct doctor {
    const cli_args *args;
    bool            json;
    str             out;
    int             n, n_of[3];
} doctor;

/* check: "cpu", "registry", ...; remedy: NULL with DOCTOR_OK. */
void doctor_say(doctor *d, const char *check, doctor_status status, const char *remedy, const char *fmt, ...)
    BASE_PRINTF(5, 6);

/* All of it as JSON, for the running server: what it would ask itself is left out. */
void doctor_report(void *unused, str *out);

/* "1.5 GB" */
const char *doctor_bytes(char out[32], double bytes);

/* The checks, in the order in which they are printed. */
typedef void        doctor_check(doctor *d);
extern doctor_check doctor_cpu, doctor_memory, doctor_limits, doctor_sandbox, doctor_paths, doctor_registry,
    doctor_config, doctor_server, doctor_demo;

#endif
