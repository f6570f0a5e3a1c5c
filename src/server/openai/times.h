/* SPDX-License-Identifier: Apache-2.0 */
/* Words with times, as a worker tells them (runtime/internal.h, dictation_times), become subtitles. */
#ifndef SERVER_OPENAI_TIMES_H
#define SERVER_OPENAI_TIMES_H

#include "base/str.h"

typedef struct times_piece {
    double begin, end; /* seconds */
    view   text;       /* of what was told, with the spaces around it */
} times_piece;

typedef struct times {
    times_piece *pieces;
    size_t       n, cap;
    view         language; /* that the model has found; empty: it was told */
    bool         failed;   /* out of memory */
} times;

/* told must stay; seconds: of the whole sound, where the last piece ends if nobody says it. */
void times_read(times *out, view told, double seconds);
void times_deinit(times *t);

void times_put_text(const times *t, str *out); /* the words alone */
void times_put_srt(const times *t, str *out);
void times_put_vtt(const times *t, str *out);

#endif
