/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with a configuration file: every problem with its place, not only the first.
 *
 * A line reads "server.yaml:7:3: kv_cache.page_size: unknown key; did you mean page_tokens?".
 */
#ifndef CONFIG_REPORT_H
#define CONFIG_REPORT_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

enum { CONFIG_MAX_PROBLEMS = 50 };

typedef struct config_problem {
    int         line, column; /* from 1; 0: the file as a whole */
    const char *text;
} config_problem;

typedef struct config_report {
    const char    *label; /* the file's name as the user knows it */
    arena          mem;
    config_problem items[CONFIG_MAX_PROBLEMS];
    size_t         n; /* all of them; only the first CONFIG_MAX_PROBLEMS are kept */
    bool           no_memory;
} config_report;

void config_report_init(config_report *r, const char *label); /* the label is borrowed */
void config_report_deinit(config_report *r);
void config_report_add(config_report *r, int line, int column, const char *fmt, ...) BASE_PRINTF(4, 5);
/* One line per problem, appended; at the end how many more there are. */
void config_report_write(const config_report *r, str *out);
/* 0 without problems; else ERR_FORMAT (or ERR_NOMEM) with the first one and how many follow. */
int config_report_result(const config_report *r, err *e);

#endif
