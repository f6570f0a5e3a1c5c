/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models/pulling.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/run/interrupt.h"
#include "formats/text.h"
#include "registry/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* --- settings --- */

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The first line of a file; *out stays NULL if there is none. */
static int read_line(char **out, const char *path, err *e) {
    char  *text;
    size_t len;
    if (!file_exists(path)) return 0;
    int rc = file_read(&text, &len, path, 1 << 16, e);
    if (rc < 0) return rc;
    text[strcspn(text, " \t\r\n")] = '\0';
    if (*text)
        *out = text;
    else
        free(text);
    return 0;
}

static int find_token(char **out, err *e) {
    const char *said = variable("HEARTH_HF_TOKEN"), *path = variable("HF_TOKEN_PATH"), *home = variable("HF_HOME");
    str         file;
    int         rc = 0;
    *out = NULL;
    if (!said) said = variable("HF_TOKEN");
    if (said) {
        *out = strdup(said);
        return *out ? 0 : err_set_nomem(e);
    }
    str_init(&file);
    if (path)
        str_puts(&file, path);
    else if (home)
        str_printf(&file, "%s/token", home);
    else if ((home = variable("XDG_CACHE_HOME")))
        str_printf(&file, "%s/huggingface/token", home);
    else if ((home = variable("HOME")))
        str_printf(&file, "%s/.cache/huggingface/token", home);
    if (file.len) rc = str_ok(&file) ? read_line(out, str_cstr(&file), e) : err_set_nomem(e);
    str_deinit(&file);
    return rc;
}

int pulling_settings(pull_request *q, char **token, err *e) {
    q->hf_endpoint = variable("HF_ENDPOINT");
    q->ollama_registry = variable("HEARTH_OLLAMA_REGISTRY");
    q->ca_file = variable("SSL_CERT_FILE");
    int rc = find_token(token, e);
    q->hf_token = *token;
    return rc;
}

/* --- progress --- */

enum { SAMPLES = 32, SAMPLE_MS = 250, LINE_MS = 5000 };

typedef struct screen {
    pulling_style style;
    bool          terminal, drawn; /* drawn: the cursor is behind a bar */
    char          last[400];       /* the status that was said last */
    int64_t       line_ms;
    struct {
        int64_t ms, bytes;
    } sample[SAMPLES]; /* of the last seconds, oldest first */
    int     n_samples;
    char    file[80];  /* digest or name of the file that was under way last */
    int64_t at, moved; /* its bytes then; bytes that came while it was looked at */
} screen;

/* Counts what comes, not what was there before: the first word about a file says where it begins. */
static void count_bytes(screen *s, const pull_progress *p) {
    const char *file = p->digest ? p->digest : p->file;
    if (!file) return;
    if (strncmp(file, s->file, sizeof s->file - 1) == 0 && p->completed > s->at) s->moved += p->completed - s->at;
    snprintf(s->file, sizeof s->file, "%s", file);
    s->at = p->completed;
}

/* Bytes a second over the last seconds. */
static double rate_of(screen *s) {
    int64_t now = clock_ms(), bytes = s->moved;
    int     n = s->n_samples;
    if (!n || now - s->sample[n - 1].ms >= SAMPLE_MS) {
        if (n == SAMPLES) memmove(s->sample, s->sample + 1, (size_t)(--n) * sizeof *s->sample);
        s->sample[n].ms = now;
        s->sample[n].bytes = bytes;
        s->n_samples = n + 1;
    }
    int64_t ms = now - s->sample[0].ms;
    return ms >= SAMPLE_MS ? (double)(bytes - s->sample[0].bytes) * 1000.0 / (double)ms : 0;
}

static void put_time(str *out, double seconds) {
    long long t = seconds > 359999 ? 359999 : (long long)(seconds + 0.5);
    if (t >= 3600)
        str_printf(out, "%lld:%02lld:%02lld", t / 3600, t / 60 % 60, t % 60);
    else
        str_printf(out, "%lld:%02lld", t / 60, t % 60);
}

/* "1.2 GB of 2.6 GB, 45 MB/s, 0:32 left" */
static void put_numbers(str *out, screen *s, const pull_progress *p) {
    char   a[16], b[16];
    double rate = rate_of(s);
    str_printf(out, "%s of ", name_bytes(a, (double)p->all_completed));
    str_puts(out, name_bytes(b, (double)p->all_total));
    if (rate <= 0 || p->all_completed >= p->all_total) return;
    str_printf(out, ", %s/s, ", name_bytes(a, rate));
    put_time(out, (double)(p->all_total - p->all_completed) / rate);
    str_puts(out, " left");
}

static int columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 ? w.ws_col : 80;
}

static void clear_bar(screen *s) {
    if (s->drawn) fputs("\r\033[K", stderr);
    s->drawn = false;
}

static bool is_waiting(const pull_progress *p) { return strncmp(p->status, "waiting", 7) == 0; }

static void draw_bar(screen *s, const pull_progress *p) {
    str line, numbers;
    int width = columns() - 1;
    str_init(&line);
    str_init(&numbers);
    double part = p->all_total > 0 ? (double)p->all_completed / (double)p->all_total : 0;
    put_numbers(&numbers, s, p);
    if (is_waiting(p) || strncmp(p->status, "verifying", 9) == 0) {
        text_put_safe(&line, view_of(p->status));
    } else {
        int room = width - (int)numbers.len - 9;
        str_printf(&line, "%3d%% ", (int)(part * 100));
        if (room >= 6) {
            int full = (int)(part * room);
            str_push(&line, '[');
            for (int i = 0; i < room; i++) str_push(&line, i < full ? '#' : '.');
            str_puts(&line, "] ");
        }
        str_append(&line, numbers.data, numbers.len);
    }
    /* Our own texts are ASCII; a status that is not may be cut inside a character, and the next drawing mends it. */
    if ((int)line.len > width) {
        line.len = (size_t)width;
        line.data[width] = '\0';
    }
    fprintf(stderr, "\r%s\033[K", str_cstr(&line));
    fflush(stderr);
    s->drawn = true;
    str_deinit(&line);
    str_deinit(&numbers);
}

/* What a log keeps: one line per step, and one every few seconds. */
static void say_lines(screen *s, const pull_progress *p) {
    str     line;
    int64_t now = clock_ms();
    bool    fresh = strncmp(s->last, p->status, 24) != 0; /* the seconds of a wait are not news */
    if (strncmp(p->status, "verifying", 9) == 0) return;
    str_init(&line);
    if (fresh) {
        char bytes[16];
        snprintf(s->last, sizeof s->last, "%s", p->status);
        text_put_safe(&line, view_of(p->status));
        if (p->file && !strstr(p->status, p->file)) {
            str_puts(&line, " ");
            text_put_safe(&line, view_of(p->file));
        }
        if (p->total > 0 && strncmp(p->status, "pulling", 7) == 0)
            str_printf(&line, " (%s)", name_bytes(bytes, (double)p->total));
        s->line_ms = now;
        if (p->all_total > 0) (void)rate_of(s);
    } else if (p->all_total > 0 && now - s->line_ms >= LINE_MS) {
        put_numbers(&line, s, p);
        s->line_ms = now;
    }
    if (line.len) fprintf(stderr, "%s\n", str_cstr(&line));
    str_deinit(&line);
}

static void put_member(str *out, const char *key, const char *text) {
    if (!text) return;
    str_printf(out, ",\"%s\":", key);
    str_put_json(out, text, strlen(text));
}

static void say_json(const pull_progress *p) {
    str line;
    str_init(&line);
    str_puts(&line, "{\"status\":");
    str_put_json(&line, p->status, strlen(p->status));
    put_member(&line, "digest", p->digest);
    put_member(&line, "file", p->file);
    if (p->digest || p->file)
        str_printf(&line, ",\"total\":%lld,\"completed\":%lld", (long long)p->total, (long long)p->completed);
    if (p->all_total)
        str_printf(&line, ",\"all_total\":%lld,\"all_completed\":%lld", (long long)p->all_total,
                   (long long)p->all_completed);
    printf("%s}\n", str_cstr(&line));
    fflush(stdout);
    str_deinit(&line);
}

static bool on_progress(void *ctx, const pull_progress *p) {
    screen *s = ctx;
    count_bytes(s, p);
    if (s->style == PULLING_JSON && strcmp(p->status, "success") != 0) {
        say_json(p);
    } else if (s->style == PULLING_TEXT && s->terminal && (p->total > 0 || is_waiting(p))) {
        draw_bar(s, p);
    } else if (s->style == PULLING_TEXT && !s->terminal && strcmp(p->status, "success") != 0) {
        say_lines(s, p);
    }
    return !interrupt_seen;
}

int pulling_run(registry *r, const pull_request *q, pulling_style style, pull_result *out, err *e) {
    screen      s = { .style = style, .terminal = isatty(STDERR_FILENO) != 0 };
    pull_events ev = { .ctx = &s, .progress = on_progress };
    int         rc = interrupt_begin(e);
    if (rc < 0) return rc;
    rc = pull_model(r, q, &ev, out, e);
    clear_bar(&s);
    interrupt_end();
    if (rc == ERR_CANCELLED) err_set(e, rc, "stopped; run the same command again to continue");
    return rc;
}
