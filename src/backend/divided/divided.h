/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model on several devices, for one that is larger than a GPU's memory. Executors have a part of the tape's ops each, as the
 * id says (backend/parts.h).
 *
 * Ops of one part that follow each other are a segment. A step goes from segment to segment and carries over what the next one
 * reads and its part does not have. A part with a single segment is given it as a step of its own. Pages and slots are divided
 * as the layers are: in host memory the bytes of the parts stand one behind the other.
 */
#ifndef BACKEND_DIVIDED_H
#define BACKEND_DIVIDED_H

#include "backend/parts.h"
#include "nn/backend.h"

enum { DIVIDED_TICKETS = 256 };

/* What an id says, with the devices that it names. */
typedef struct divided_place {
    backend_parts     parts;
    const nn_backend *backend[BACKEND_MAX_PARTS];
    nn_device         device[BACKEND_MAX_PARTS];
} divided_place;

/* What a segment reads and another part has made. */
typedef struct divided_need {
    nn_buf buf;
    int    from;
} divided_need;

typedef struct divided_segment {
    int           part, first, end; /* ops */
    bool          alone;            /* the only one of its part */
    divided_need *needs;
    int           n_needs;
} divided_segment;

/* Work that was started on each part; a ticket of 0 means none there. */
typedef struct divided_ticket {
    nn_ticket mine, of[BACKEND_MAX_PARTS];
} divided_ticket;

typedef struct divided_exec {
    nn_exec          x;
    arena            mem;
    int              n_parts;
    nn_exec         *part[BACKEND_MAX_PARTS]; /* NULL where it has no ops */
    uint8_t         *part_of;                 /* [n_ops] */
    bool            *ops[BACKEND_MAX_PARTS];  /* [n_ops]: the same for each of them */
    divided_segment *segments;
    int              n_segments;
    float           *carried; /* what is on its way */
    nn_rows         *entry;   /* of a segment that is a step of its own: the same */

    nn_batch              batch;      /* of begin */
    int                   ran;        /* op by op: behind the last one */
    nn_ticket             last, step; /* given out; of the step under way, 0: none */
    divided_ticket        tickets[DIVIDED_TICKETS];
    nn_move              *moves; /* those of one part, while they are started */
    int                   cap_moves;
    const nn_adapter_set *sets[NN_MAX_SETS + 1];
} divided_exec;

int    divided_plan(divided_exec *x, const divided_place *p, err *e); /* parts, segments and what they need */
size_t divided_carried_bytes(const divided_exec *x);                  /* the most that is on its way at once */
/* Which part has what was made of a buffer by the ops in front of `end`. */
int divided_part_of(const divided_exec *x, nn_buf b, int end);

int divided_submit(nn_exec *base, const nn_batch *b, nn_ticket *step, err *e);
int divided_wait(nn_exec *base, nn_ticket ticket, err *e);
int divided_fetch(nn_exec *base, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e);
int divided_sample(nn_exec *base, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out,
                   err *e);
int divided_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e);
int divided_begin(nn_exec *base, const nn_batch *b, err *e);
int divided_run(nn_exec *base, int first_op, int end_op, err *e);
int divided_read(nn_exec *base, nn_buf b, float *to, err *e);
int divided_write(nn_exec *base, nn_buf b, const float *from, err *e);

#endif
