/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/wrap.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define STRONG "\033[1m"
#define CODE "\033[36m"
#define PLAIN "\033[0m"

int wrap_columns(void) {
    struct winsize size = { 0 };
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void wrap_init(wrap *w, bool markdown) {
    *w = (wrap){ .markdown = markdown };
    str_init(&w->word);
}

void wrap_deinit(wrap *w) { str_deinit(&w->word); }

/* --- words --- */

static void flush(wrap *w, str *out) {
    bool breaks = w->width > 0 && w->column > 0 && w->column + w->n_spaces + w->word_width > w->width;
    if (!w->word_width) { /* colours at most; what is between words waits for the next one */
        str_append(out, str_cstr(&w->word), w->word.len);
        str_clear(&w->word);
        return;
    }
    if (breaks) {
        str_push(out, '\n');
        w->column = 0;
    } else {
        for (int i = 0; i < w->n_spaces; i++) str_push(out, ' ');
        w->column += w->n_spaces;
    }
    w->n_spaces = 0;
    str_append(out, str_cstr(&w->word), w->word.len);
    w->column += w->word_width;
    if (w->width > 0 && w->column > w->width) w->column %= w->width; /* the terminal breaks what is too long */
    str_clear(&w->word);
    w->word_width = 0;
}

static int columns_of(unsigned code) {
    int n = wcwidth((wchar_t)code);
    return n < 0 ? 1 : n;
}

static void put_char(wrap *w, const char *bytes, size_t n, unsigned code, str *out) {
    int columns = columns_of(code);
    if (columns == 2) flush(w, out); /* scripts with wide characters break anywhere */
    str_append(&w->word, bytes, n);
    w->word_width += columns;
    if (columns == 2 || w->fence) flush(w, out);
}

/* --- marks --- */

/* Colours belong to the word that follows them. */
static void colours(wrap *w) {
    str_puts(&w->word, PLAIN);
    if (w->strong || w->heading) str_puts(&w->word, STRONG);
    if (w->code || w->fence) str_puts(&w->word, CODE);
}

static void put_marks(wrap *w, char mark, int n, str *out) {
    for (; n > 0; n--) put_char(w, &mark, 1, (unsigned char)mark, out);
}

/* The character behind a row of marks says what they were. */
static void settle(wrap *w, unsigned next, str *out) {
    int ticks = w->ticks, stars = w->stars, hash = w->hash;
    w->ticks = w->stars = w->hash = 0;
    if (hash && hash <= 6 && next == ' ') {
        w->heading = w->skip = true;
        colours(w);
    } else {
        put_marks(w, '#', hash, out);
    }
    if (ticks == 1) {
        w->code = !w->code;
        colours(w);
    } else {
        put_marks(w, '`', ticks, out);
    }
    if (stars == 2 && !w->code) {
        w->strong = !w->strong;
        colours(w);
    } else {
        put_marks(w, '*', stars, out);
    }
}

/* True: the character is a mark and is shown later or never. */
static bool is_mark(wrap *w, unsigned code, str *out) {
    bool begin = w->n_line == 0;
    if (!w->markdown || w->fence) return false;
    if (code == '`' && !w->stars && !w->hash) {
        w->ticks++;
        return true;
    }
    if (code == '*' && !w->ticks && !w->hash) {
        w->stars++;
        return true;
    }
    if (code == '#' && (begin || w->hash) && !w->ticks && !w->stars) {
        w->hash++;
        return true;
    }
    if (w->ticks || w->stars || w->hash) settle(w, code, out);
    if (!w->skip) return false;
    w->skip = false;
    return true; /* the blank behind a heading's marks */
}

/* --- lines --- */

static void end_line(wrap *w, str *out) {
    if (w->ticks || w->stars || w->hash) settle(w, '\n', out);
    if (w->heading) {
        w->heading = false;
        colours(w);
    }
    flush(w, out);
    str_push(out, '\n');
    w->column = 0;
    w->n_spaces = 0;
    w->n_line = 0;
    w->lead = 0;
    w->skip = false;
}

/* Three ticks at the beginning of a line open and close a block. True: this was the third. */
static bool is_fence(wrap *w, unsigned code, str *out) {
    int held = w->ticks;
    if (code != '`' || w->n_line != (size_t)w->lead || ++w->lead != 3) return false;
    w->fence = !w->fence;
    w->ticks = 0;
    if (w->markdown) colours(w);
    put_marks(w, '`', held + 1, out);
    return true;
}

void wrap_put(wrap *w, view text, str *out) {
    w->width = wrap_columns();
    for (size_t i = 0; i < text.len;) {
        unsigned code = (unsigned char)text.data[i];
        size_t   n = 1;
        while (n < 4 && i + n < text.len && !utf8_decode(text.data + i, n, &code)) n++;
        if (code == '\n') {
            end_line(w, out);
        } else if (is_fence(w, code, out) || is_mark(w, code, out)) {
            w->n_line++;
        } else if ((code == ' ' || code == '\t') && !w->fence) {
            flush(w, out);
            w->n_spaces += code == '\t' ? 8 - w->column % 8 : 1;
            w->n_line++;
        } else {
            put_char(w, text.data + i, n, code, out);
            w->n_line++;
        }
        i += n;
    }
}

void wrap_finish(wrap *w, str *out) {
    bool coloured = w->strong || w->code || w->heading || w->fence;
    if (w->ticks || w->stars || w->hash) settle(w, '\n', out);
    flush(w, out);
    w->n_spaces = 0;
    if (w->markdown && coloured) str_puts(out, PLAIN);
}
