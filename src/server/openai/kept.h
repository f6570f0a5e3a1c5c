/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses that are kept, in memory only, so that a later request can go on from one by its id.
 *
 * One is kept whole: as it was answered, what was asked, and the conversation up to its end. The oldest go first when
 * all together would be more than the limit of bytes, and each when its time is over. A response belongs to the key that
 * asked for it: nobody else finds it. Any thread.
 */
#ifndef SERVER_OPENAI_KEPT_H
#define SERVER_OPENAI_KEPT_H

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

typedef struct kept kept;

/* bytes 0: nothing is kept. */
int  kept_open(kept **out, size_t bytes, double seconds, err *e);
void kept_free(kept *k); /* accepts NULL */

typedef struct kept_response {
    str response; /* a JSON object */
    str input;    /* items of this request, without brackets */
    str talk;     /* items of the whole conversation, the answer's too, without brackets */
} kept_response;

void kept_response_deinit(kept_response *r);

/* Takes the texts. One that is too large is not kept. */
void kept_put(kept *k, const char *id, uint64_t owner, kept_response *r);
/* A copy; false: there is none. */
bool kept_get(kept *k, view id, uint64_t owner, kept_response *out);
bool kept_remove(kept *k, view id, uint64_t owner);

#endif
