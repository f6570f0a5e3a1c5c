/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/convert/progress.h"

#include "base/clock.h"
#include "base/str.h"
#include "cli/run/interrupt.h"
#include "registry/names.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { REDRAW_MS = 100, WIDTH_DEFAULT = 80 };

int progress_begin(progress *p, bool quiet, const char *unit, err *e) {
    *p = (progress){ .quiet = quiet || !isatty(STDERR_FILENO), .unit = unit, .began_ms = clock_ms() };
    int rc = interrupt_begin(e);
    if (rc == 0) interrupt_also_ends();
    return rc;
}

static int columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 ? w.ws_col : WIDTH_DEFAULT;
}

/* "1.2 GB of 2.6 GB, 45 MB/s, 0:32 left" */
static void put_numbers(const progress *p, str *out, uint64_t done, uint64_t total) {
    char    a[16], b[16];
    int64_t ms = clock_ms() - p->began_ms;
    if (p->unit)
        str_printf(out, "%llu of %llu %s", (unsigned long long)done, (unsigned long long)total, p->unit);
    else
        str_printf(out, "%s of %s", name_bytes(a, (double)done), name_bytes(b, (double)total));
    if (ms < 500 || done <= p->first || done >= total) return;
    double rate = (double)(done - p->first) * 1000 / (double)ms;
    long   left = (long)((double)(total - done) / rate + 0.5);
    if (!p->unit) str_printf(out, ", %s/s", name_bytes(a, rate));
    str_printf(out, ", %ld:%02ld left", left / 60, left % 60);
}

static void draw(progress *p, uint64_t done, uint64_t total) {
    str line, numbers;
    str_init(&line);
    str_init(&numbers);
    put_numbers(p, &numbers, done, total);
    double part = total > 0 ? (double)done / (double)total : 0;
    int    room = columns() - 1 - (int)numbers.len - 9;
    str_printf(&line, "%3d%% ", (int)(part * 100));
    if (room >= 6) {
        str_push(&line, '[');
        for (int i = 0; i < room; i++) str_push(&line, i < (int)(part * room) ? '#' : '.');
        str_puts(&line, "] ");
    }
    str_puts(&line, str_cstr(&numbers));
    fprintf(stderr, "\r%s\033[K", str_cstr(&line));
    fflush(stderr);
    p->drawn = true;
    str_deinit(&line);
    str_deinit(&numbers);
}

bool progress_at(void *ctx, uint64_t done, uint64_t total) {
    progress *p = ctx;
    int64_t   now = clock_ms();
    if (!p->drawn_ms) p->first = done;
    if (!p->quiet && now - p->drawn_ms >= REDRAW_MS) {
        draw(p, done, total);
        p->drawn_ms = now;
    }
    return !interrupt_seen;
}

void progress_of(progress *p, const char *unit) {
    if (p->unit == unit) return;
    p->unit = unit;
    p->began_ms = clock_ms();
    p->drawn_ms = 0;
}

void progress_end(progress *p) {
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
    interrupt_end();
}

uint64_t progress_peak_memory(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}
