/* SPDX-License-Identifier: Apache-2.0 */
#include "config/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SENTENCE = 600 };

void config_report_init(config_report *r, const char *label) {
    memset(r, 0, sizeof *r);
    r->label = label;
    arena_init(&r->mem, 0);
}

void config_report_deinit(config_report *r) { arena_deinit(&r->mem); }

void config_report_add(config_report *r, int line, int column, const char *fmt, ...) {
    char    text[MAX_SENTENCE];
    va_list ap;
    if (r->n >= CONFIG_MAX_PROBLEMS) {
        r->n++;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *kept = arena_strdup(&r->mem, text);
    if (!kept) r->no_memory = true;
    size_t at = r->n++; /* in the order of the file, however they were found */
    for (; at && (r->items[at - 1].line > line || (r->items[at - 1].line == line && r->items[at - 1].column > column));
         at--)
        r->items[at] = r->items[at - 1];
    r->items[at] = (config_problem){ line, column, kept ? kept : "out of memory" };
}

static void write_one(const config_report *r, const config_problem *p, str *out) {
    str_puts(out, r->label);
    if (p->line) str_printf(out, ":%d:%d", p->line, p->column);
    str_printf(out, ": %s", p->text);
}

void config_report_write(const config_report *r, str *out) {
    for (size_t i = 0; i < r->n && i < CONFIG_MAX_PROBLEMS; i++) {
        write_one(r, &r->items[i], out);
        str_push(out, '\n');
    }
    if (r->n > CONFIG_MAX_PROBLEMS)
        str_printf(out, "%s: %zu more problems are not shown\n", r->label, r->n - CONFIG_MAX_PROBLEMS);
}

int config_report_result(const config_report *r, err *e) {
    str line;
    if (r->no_memory) return err_set_nomem(e);
    if (r->n == 0) return 0;
    str_init(&line);
    write_one(r, &r->items[0], &line);
    if (r->n > 1) str_printf(&line, " (and %zu more)", r->n - 1);
    int rc = err_set(e, ERR_FORMAT, "%s", str_cstr(&line));
    str_deinit(&line);
    return rc;
}
