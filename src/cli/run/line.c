/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/line.h"

#include "base/file.h"
#include "cli/run/interrupt.h"

#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000 };

struct line_editor {
    EditLine   *el;
    History    *history;
    char       *path; /* NULL: nowhere to keep it */
    const char *prompt;
    bool        interrupted;
};

static char *show_prompt(EditLine *el) {
    line_editor *l = NULL;
    el_get(el, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)l->prompt; /* libedit only reads it */
}

/* One character. libedit's own reader sleeps on after a signal; here Ctrl-C ends the line. */
static int read_char(EditLine *el, wchar_t *out) {
    line_editor *l = NULL;
    char         bytes[4];
    unsigned     code;
    el_get(el, EL_CLIENTDATA, &l);
    for (size_t n = 0; n < sizeof bytes;) {
        if (!interrupt_wait(STDIN_FILENO)) {
            l->interrupted = true;
            return -1;
        }
        ssize_t got = read(STDIN_FILENO, bytes + n, 1);
        if (got < 0) return -1;
        if (got == 0) return 0;
        if (utf8_decode(bytes, ++n, &code)) {
            *out = (wchar_t)code;
            return 1;
        }
    }
    *out = 0xFFFD;
    return 1;
}

/* The directories on the way to the file, as far as they are missing. */
static void make_dirs(char *path) {
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        (void)mkdir(path, 0700);
        *p = '/';
    }
}

static char *history_path(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/') return path_join(state, "hearth/history");
    return home && *home == '/' ? path_join(home, ".local/state/hearth/history") : NULL;
}

int line_open(line_editor **out, err *e) {
    HistEvent ev;
    *out = NULL;
    line_editor *l = calloc(1, sizeof *l);
    if (!l) return err_set_nomem(e);
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) (void)setlocale(LC_CTYPE, "C.UTF-8");
    l->prompt = "";
    l->el = el_init("hearth", stdin, stdout, stderr);
    l->history = history_init();
    int rc = l->el && l->history ? interrupt_begin(e) : err_set(e, ERR_IO, "cannot use this terminal");
    if (rc < 0) {
        line_close(l);
        return rc;
    }
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, show_prompt);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_GETCFN, read_char);
    el_set(l->el, EL_HIST, history, l->history);
    history(l->history, &ev, H_SETSIZE, HISTORY_LINES);
    history(l->history, &ev, H_SETUNIQUE, 1);
    l->path = history_path();
    if (l->path) history(l->history, &ev, H_LOAD, l->path);
    el_source(l->el, NULL);
    *out = l;
    return 0;
}

void line_close(line_editor *l) {
    HistEvent ev;
    if (!l) return;
    interrupt_end();
    if (l->path) {
        mode_t old = umask(0077);
        make_dirs(l->path);
        history(l->history, &ev, H_SAVE, l->path);
        umask(old);
    }
    if (l->el) el_end(l->el);
    if (l->history) history_end(l->history);
    free(l->path);
    free(l);
}

line_result line_read(line_editor *l, const char *prompt, str *out) {
    int n = 0;
    l->prompt = prompt;
    l->interrupted = false;
    interrupt_clear();
    str_clear(out);
    const char *text = el_gets(l->el, &n);
    if (l->interrupted) {
        el_reset(l->el);
        fputs("^C\n", stdout);
        return LINE_INTERRUPTED;
    }
    if (!text || n <= 0) {
        fputc('\n', stdout);
        return LINE_END;
    }
    str_append(out, text, (size_t)n);
    while (out->len && (out->data[out->len - 1] == '\n' || out->data[out->len - 1] == '\r'))
        out->data[--out->len] = '\0';
    return LINE_OK;
}

void line_remember(line_editor *l, const char *text) {
    HistEvent ev;
    if (*text) history(l->history, &ev, H_ENTER, text);
}
