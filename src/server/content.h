/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message's content while it is read: texts, pictures and sounds in their order, whatever protocol they came in.
 *
 * Without a picture or a sound it becomes one text, as most templates want it; with one it becomes a list of parts. These are
 * decoded at once, in a process of its own (host/decoder), and join the blobs of the request; what is wrong with them is a
 * mistake of the client, at the place where it stands. Addresses are fetched only where the settings allow it (fetch.h).
 */
#ifndef SERVER_CONTENT_H
#define SERVER_CONTENT_H

#include "server/exchange.h"
#include "server/http/json_out.h"

enum { CONTENT_MAX_FILE = 20 << 20 }; /* bytes of an encoded picture or sound */

typedef struct content_reader {
    exchange        *x;
    runtime_request *q;
    str              parts, text; /* text: since the last picture or sound */
    jw               w;
    bool             media; /* a picture or a sound came */
    bool             low;   /* of the pictures that follow little detail is enough */
} content_reader;

void content_init(content_reader *c, exchange *x, runtime_request *q);
void content_deinit(content_reader *c);

void content_text(content_reader *c, view text);
void content_detail(content_reader *c, const node *from); /* its member "detail", for the next picture */
/* at: where a mistake is reported. url: "data:image/png;base64,..."; base64: such bytes alone, or such a url. */
void content_picture_url(content_reader *c, const node *at, view url);
void content_picture_base64(content_reader *c, const node *at, view base64);
/* {"data": base64, "format": "wav" or "mp3"}, as OpenAI has it. */
void content_sound(content_reader *c, const node *from);
void content_medium_base64(content_reader *c, const node *at,
                           view base64); /* a picture, or a sound: the bytes say it */

void content_sound_base64(content_reader *c, const node *at, view base64);

void content_put(content_reader *c, jw *w); /* as the member "content" */

#endif
