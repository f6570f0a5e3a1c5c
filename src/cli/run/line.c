/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/line.h"

#include "base/file.h"
#include "cli/run/interrupt.h"
#include "cli/run/wrap.h"

#include <histedit.h>
#include <locale.h>
#include <poll.h>
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
    str         ahead; /* to be read before what is typed: a paste, or what followed an escape */
    size_t      at;
};

static char *show_prompt(EditLine *el) {
    line_editor *l = NULL;
    el_get(el, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)l->prompt; /* libedit only reads it */
}

/* --- what is typed, and what is pasted --- */

/*
 * A terminal puts marks around what is pasted (bracketed paste). Within them a line break is a part of the text, not the
 * end of the line: it is shown as a sign of its own, as a tab is, and becomes what it was when the line is taken.
 */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END "\033[201~"
enum { MAX_PASTE = 16 << 20, MARK_BYTES = 6, ESCAPE_MS = 50, SIGN_BREAK = 0x23CE, SIGN_TAB = 0x21E5 };

static int width_of(const char *from, const char *to) {
    int all = 0;
    for (size_t n; from < to; from += n) {
        unsigned code = (unsigned char)*from;
        size_t   left = (size_t)(to - from);
        n = 1;
        while (n < 4 && n < left && !utf8_decode(from, n, &code)) n++;
        int one = wcwidth((wchar_t)code);
        all += one < 0 ? 1 : one;
    }
    return all;
}

/* The window has another width: terminals break the line anew and leave the cursor behind the same character. So it is
 * known how far up the line begins; from there it is drawn again. */
static void redraw(line_editor *l) {
    const LineInfo *line = el_line(l->el);
    int             columns = wrap_columns(), up;
    if (columns <= 0) return;
    up = (width_of(l->prompt, l->prompt + strlen(l->prompt)) + width_of(line->buffer, line->cursor)) / columns;
    if (up > 0) printf("\033[%dA", up);
    fputs("\r\033[J", stdout);
    fflush(stdout);
    el_resize(l->el);
    el_set(l->el, EL_REFRESH, NULL);
}

/* One byte; 0: the end, -1: Ctrl-C or an error. While nothing comes the line is drawn again if it must be. */
static int read_byte(line_editor *l, char *out) {
    for (;;) {
        if (l->at < l->ahead.len) {
            *out = l->ahead.data[l->at++];
            return 1;
        }
        if (!interrupt_wait(STDIN_FILENO)) {
            l->interrupted = true;
            return -1;
        }
        if (!interrupt_redraw) return (int)read(STDIN_FILENO, out, 1);
        interrupt_redraw = 0;
        redraw(l);
    }
}

/* The rest of a mark behind ESC: what came of it lies in l->ahead if it is something else. */
static bool is_paste(line_editor *l) {
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    char          c;
    str_clear(&l->ahead);
    l->at = 0;
    for (size_t n = 1; n < MARK_BYTES; n++) {
        if (poll(&p, 1, ESCAPE_MS) != 1 || read(STDIN_FILENO, &c, 1) != 1) return false;
        str_push(&l->ahead, c);
        if (c != PASTE_BEGIN[n]) return false;
    }
    return str_ok(&l->ahead);
}

static void put_code(str *out, unsigned code) {
    str_push(out, (char)(0xE0 | code >> 12));
    str_push(out, (char)(0x80 | (code >> 6 & 0x3F)));
    str_push(out, (char)(0x80 | (code & 0x3F)));
}

/* Everything up to the closing mark, into l->ahead as it is to be typed. False: the end, or Ctrl-C. */
static bool take_paste(line_editor *l) {
    str  text;
    char c;
    bool ok = true, over = false;
    str_init(&text);
    str_clear(&l->ahead);
    l->at = 0;
    while (!over && (ok = read_byte(l, &c) == 1 && text.len < MAX_PASTE)) {
        str_push(&text, c);
        over = text.len >= MARK_BYTES && memcmp(text.data + text.len - MARK_BYTES, PASTE_END, MARK_BYTES) == 0;
    }
    if (over) text.len -= MARK_BYTES;
    while (text.len && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r')) text.len--;
    for (size_t i = 0; i < text.len; i++) {
        bool pair = text.data[i] == '\r' && i + 1 < text.len && text.data[i + 1] == '\n';
        if (pair) continue;
        if (text.data[i] == '\n' || text.data[i] == '\r')
            put_code(&l->ahead, SIGN_BREAK);
        else if (text.data[i] == '\t')
            put_code(&l->ahead, SIGN_TAB);
        else if ((unsigned char)text.data[i] >= ' ' && text.data[i] != 0x7F)
            str_push(&l->ahead, text.data[i]);
    }
    ok = ok && str_ok(&text) && str_ok(&l->ahead);
    str_deinit(&text);
    return ok;
}

/* The signs of a pasted text become what they stand for, and back. */
static void swap_signs(str *text, bool to_signs) {
    str out;
    str_init(&out);
    for (size_t i = 0; i < text->len; i++) {
        unsigned code = 0;
        if (!to_signs && i + 3 <= text->len && utf8_decode(text->data + i, 3, &code) == 3 &&
            (code == SIGN_BREAK || code == SIGN_TAB)) {
            str_push(&out, code == SIGN_BREAK ? '\n' : '\t');
            i += 2;
        } else if (to_signs && (text->data[i] == '\n' || text->data[i] == '\t')) {
            put_code(&out, text->data[i] == '\n' ? SIGN_BREAK : SIGN_TAB);
        } else {
            str_push(&out, text->data[i]);
        }
    }
    if (str_ok(&out)) {
        str_clear(text);
        str_append(text, str_cstr(&out), out.len);
    }
    str_deinit(&out);
}

/* One character. libedit's own reader sleeps on after a signal; here Ctrl-C ends the line. */
static int read_char(EditLine *el, wchar_t *out) {
    line_editor *l = NULL;
    char         bytes[4];
    unsigned     code;
    el_get(el, EL_CLIENTDATA, &l);
    for (size_t n = 0; n < sizeof bytes;) {
        bool fresh = l->at >= l->ahead.len;
        int  got = read_byte(l, &bytes[n]);
        if (got <= 0) return got;
        if (n == 0 && fresh && bytes[0] == '\033' && is_paste(l)) {
            if (!take_paste(l)) return -1;
            continue;
        }
        if (utf8_decode(bytes, ++n, &code)) {
            *out = (wchar_t)code;
            return 1;
        }
    }
    *out = 0xFFFD;
    return 1;
}

/* --- the editor --- */

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
    fputs(PASTE_OFF, stdout);
    fflush(stdout);
    if (l->el) el_end(l->el);
    if (l->history) history_end(l->history);
    str_deinit(&l->ahead);
    free(l->path);
    free(l);
}

line_result line_read(line_editor *l, const char *prompt, str *out) {
    int n = 0;
    l->prompt = prompt;
    l->interrupted = false;
    interrupt_clear();
    str_clear(out);
    fputs(PASTE_ON, stdout);
    fflush(stdout);
    const char *text = el_gets(l->el, &n);
    fputs(PASTE_OFF, stdout);
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
    swap_signs(out, false);
    return LINE_OK;
}

void line_remember(line_editor *l, const char *text) {
    HistEvent ev;
    str       one;
    if (!*text) return;
    str_init(&one);
    str_puts(&one, text);
    swap_signs(&one, true); /* a line of the history is one line */
    history(l->history, &ev, H_ENTER, str_cstr(&one));
    str_deinit(&one);
}
