/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is told is text with marks: "<|+27.300|>" where a part of the sound begins, "<|1.20|>" before and behind each piece,
 * counted from there, and words such as "<|en|>" and "<|transcribe|>" in front. A text without a mark before it begins where
 * the last one ended, and one without a mark behind it ends where the next one begins, or the sound.
 */
#include "server/openai/times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Without spaces at its ends. */
static view trim(view text) {
    while (text.len && text.data[0] == ' ') text.data++, text.len--;
    while (text.len && text.data[text.len - 1] == ' ') text.len--;
    return text;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A number of seconds with a point, as marks have it. */
static bool read_seconds(view v, double *out) {
    double x = 0, unit = 1;
    bool   behind = false;
    if (v.len == 0 || v.len > 12 || !is_digit(v.data[0]) || !is_digit(v.data[v.len - 1])) return false;
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] == '.' && !behind) {
            behind = true;
        } else if (is_digit(v.data[i])) {
            x = x * 10 + (v.data[i] - '0');
            if (behind) unit *= 10;
        } else {
            return false;
        }
    }
    *out = x / unit;
    return behind;
}

static bool is_word(view v) {
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] < 'a' || v.data[i] > 'z') return false;
    }
    return v.len > 0;
}

/* The mark at the beginning of a text: what is between its ends. False: there is none. */
static bool read_mark(view text, view *inside) {
    enum { MOST = 24 };
    if (text.len < 5 || memcmp(text.data, "<|", 2) != 0) return false;
    for (size_t i = 2; i + 1 < text.len && i < MOST; i++) {
        if (text.data[i] != '|' || text.data[i + 1] != '>') continue;
        *inside = (view){ text.data + 2, i - 2 };
        return true;
    }
    return false;
}

typedef struct reading {
    times *t;
    double part, at; /* where the part begins, and the piece at hand */
    view   text;     /* of that */
} reading;

static void end_piece(reading *r, double end) {
    times *t = r->t;
    if (trim(r->text).len) {
        if (t->n == t->cap) {
            size_t       cap = t->cap ? 2 * t->cap : 64;
            times_piece *more = realloc(t->pieces, cap * sizeof *more);
            t->failed = t->failed || !more;
            if (!more) return;
            t->pieces = more;
            t->cap = cap;
        }
        t->pieces[t->n++] = (times_piece){ r->at, end > r->at ? end : r->at, r->text };
    }
    r->text = (view){ "", 0 };
    r->at = end;
}

/* False: the mark is none, but text. */
static bool take_mark(reading *r, view mark) {
    double x;
    if (mark.len > 1 && mark.data[0] == '+' && read_seconds((view){ mark.data + 1, mark.len - 1 }, &x)) {
        end_piece(r, x);
        r->part = r->at = x;
    } else if (read_seconds(mark, &x)) {
        end_piece(r, r->part + x);
    } else if (is_word(mark) && !r->text.len) {
        if (mark.len <= 3) r->t->language = mark;
    } else {
        return false;
    }
    return true;
}

void times_read(times *out, view told, double seconds) {
    *out = (times){ .language = { "", 0 } };
    reading r = { .t = out, .text = { "", 0 } };
    while (told.len && !out->failed) {
        view   mark;
        bool   taken = read_mark(told, &mark) && take_mark(&r, mark);
        size_t n = taken ? mark.len + 4 : 1;
        if (!taken && !r.text.len++) r.text = (view){ told.data, 1 };
        told = (view){ told.data + n, told.len - n };
    }
    end_piece(&r, seconds);
}

void times_deinit(times *t) {
    free(t->pieces);
    *t = (times){ 0 };
}

void times_put_text(const times *t, str *out) {
    for (size_t i = 0; i < t->n; i++) {
        view text = t->pieces[i].text;
        if (i == 0) {
            while (text.len && text.data[0] == ' ') text.data++, text.len--;
        }
        str_append(out, text.data, text.len);
    }
}

/* 01:02:03.456 */
static void put_moment(str *out, double seconds, char point) {
    long long ms = llround(seconds * 1000);
    str_printf(out, "%02lld:%02lld:%02lld%c%03lld", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, point, ms % 1000);
}

static void put_pieces(const times *t, str *out, bool numbered, char point) {
    for (size_t i = 0; i < t->n; i++) {
        view text = trim(t->pieces[i].text);
        if (numbered) str_printf(out, "%zu\n", i + 1);
        put_moment(out, t->pieces[i].begin, point);
        str_puts(out, " --> ");
        put_moment(out, t->pieces[i].end, point);
        str_push(out, '\n');
        for (size_t k = 0; k < text.len; k++) { /* an empty line would end the piece, an arrow be a moment */
            bool arrow = k + 2 < text.len && memcmp(text.data + k, "-->", 3) == 0;
            str_puts(out, arrow ? "->" : "");
            if (arrow)
                k += 2;
            else
                str_push(out, text.data[k] == '\n' || text.data[k] == '\r' ? ' ' : text.data[k]);
        }
        str_puts(out, "\n\n");
    }
}

void times_put_srt(const times *t, str *out) { put_pieces(t, out, true, ','); }

void times_put_vtt(const times *t, str *out) {
    str_puts(out, "WEBVTT\n\n");
    put_pieces(t, out, false, '.');
}
