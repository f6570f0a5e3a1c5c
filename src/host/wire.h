/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server's process and a model's worker say to each other, as bytes.
 *
 * Both ends run the same program on the same machine, so numbers lie as this machine has them (little endian on
 * everything we build for). A frame is
 *
 *     u32 bytes of the body   u8 version   u8 type   u16 zero   u64 id   body
 *
 * and a body is its fields one behind the other, without padding, as the tables of wire_tables.h list them
 * (wire_codec.h has the layout of each kind). "id" is the request or call a frame belongs to; 0 where there is none.
 *
 * A request's body ends with its blobs: the bytes of images, which do not fit into JSON. Messages name one by its
 * index. They are borrowed on both sides: not copied into the request that is read, but views into the frame.
 *
 * Neither side trusts the other. A frame that is too long, of another version, of an unknown type, with a field outside
 * its range, with a length beyond the frame's end, with bytes left over, or with text that is not UTF-8 where UTF-8 was
 * promised is an error; the reader then gives the connection up. Nothing is allocated for a length that was announced
 * but has not arrived. The encoders refuse the same values, so that a caller's mistake ends with a sentence instead of
 * a lost connection.
 */
#ifndef HOST_WIRE_H
#define HOST_WIRE_H

#include "base/arena.h"
#include "host/wire_codec.h"
#include "runtime/need.h"
#include "runtime/runtime.h"

enum { WIRE_VERSION = 5, WIRE_HEAD_BYTES = 16 };

#define WIRE_MAX_DOWN ((size_t)1 << 30) /* largest body towards a worker */
#define WIRE_MAX_UP ((size_t)512 << 20) /* and from one */

typedef enum wire_type {
    /* down */
    WIRE_OPEN,       /* wire_open; the first frame, once */
    WIRE_LOAD,       /* nothing: there is room for it */
    WIRE_SUBMIT,     /* request */
    WIRE_CANCEL,     /* nothing */
    WIRE_PAUSE,      /* nothing */
    WIRE_RESUME,     /* nothing */
    WIRE_TOKENIZE,   /* wire_text_call */
    WIRE_DETOKENIZE, /* wire_ids_call */
    WIRE_RENDER,     /* request */
    WIRE_COUNT,      /* request */
    WIRE_PING,       /* log level; the id comes back with the PONG */
    WIRE_QUIT,       /* nothing: cancel everything, end */
    /* up */
    WIRE_NEED, /* need; the worker waits for LOAD. Behind READY: what it needs now, with the adapters that it has loaded */
    WIRE_LOADING, /* fraction */
    WIRE_READY,   /* info */
    WIRE_FAILED,  /* err: the model cannot be loaded */
    WIRE_EVENT,   /* event */
    WIRE_RESULT,  /* wire_result of a call */
    WIRE_PONG,    /* wire_pong */
    WIRE_TYPE_COUNT,
    WIRE_FIRST_UP = WIRE_NEED,
} wire_type;

typedef struct wire_frame {
    wire_type type;
    uint64_t  id;
    view      body; /* points into the reader's buffer */
} wire_frame;

/* The first frame in data: 1 (it took *used bytes), 0 (more must be read; *used says how much there must be in all) or
 * negative. up: it comes from a worker. */
int wire_next(const char *data, size_t bytes, bool up, wire_frame *out, size_t *used, err *e);

/* --- bodies --- */

/* How a worker begins. */
typedef struct wire_open {
    runtime_options runtime;
    const char     *name;  /* of the model, for its log lines */
    const char     *fault; /* what a test wants to go wrong; "": nothing */
    bool            no_sandbox;
    int             log_level;
    size_t          queue_bytes; /* of events that the parent has not read; 0: the worker's own */
} wire_open;

typedef struct wire_text_call {
    view text;
    bool add_special, parse_special;
} wire_text_call;

typedef struct wire_ids_call {
    const int32_t *ids;
    size_t         n;
    bool           keep_special;
} wire_ids_call;

/* The answer to a call. TOKENIZE fills ids, DETOKENIZE and RENDER text, COUNT count. */
typedef struct wire_result {
    err            error; /* code 0: it worked */
    view           text;
    const int32_t *ids;
    size_t         n_ids;
    uint64_t       count;
} wire_result;

typedef struct wire_pong {
    uint64_t      stamp; /* grows whenever the engine, the preparation or a call got on */
    runtime_stats stats;
} wire_pong;

/* What an event begins with, whatever its kind. */
typedef struct wire_event_head {
    runtime_event_kind kind;
    int                choice;
    bool               last;
} wire_event_head;

/* Each appends one frame; on failure nothing. ERR_ARG names the field that cannot be sent. */
int wire_put_empty(str *out, wire_type type, uint64_t id, err *e);
int wire_put_open(str *out, const wire_open *o, err *e);
int wire_put_request(str *out, wire_type type, uint64_t id, const runtime_request *q, err *e);
int wire_put_text_call(str *out, uint64_t id, const wire_text_call *c, err *e);
int wire_put_ids_call(str *out, uint64_t id, const wire_ids_call *c, err *e);
int wire_put_ping(str *out, uint64_t id, int level, err *e);
int wire_put_need(str *out, const need *n, err *e);
int wire_put_loading(str *out, float fraction, err *e);
int wire_put_ready(str *out, const runtime_info *i, err *e);
int wire_put_failed(str *out, const err *why, err *e);
int wire_put_event(str *out, uint64_t id, const runtime_event *ev, err *e);
int wire_put_result(str *out, uint64_t id, const wire_result *r, err *e);
int wire_put_pong(str *out, uint64_t id, const wire_pong *p, err *e);

/* Each reads the body of a frame whose type fits. Views point into the body, arrays and terminated texts into the
 * arena. A request's callback is not touched; an event's error is. */
int wire_get_open(view body, arena *mem, wire_open *o, err *e);
int wire_get_request(view body, arena *mem, runtime_request *q, err *e);
int wire_get_text_call(view body, wire_text_call *c, err *e);
int wire_get_ids_call(view body, arena *mem, wire_ids_call *c, err *e);
int wire_get_ping(view body, int *level, err *e);
int wire_get_need(view body, need *n, err *e);
int wire_get_loading(view body, float *fraction, err *e);
int wire_get_ready(view body, arena *mem, runtime_info *i, err *e);
int wire_get_failed(view body, err *why, err *e);
int wire_get_event(view body, arena *mem, runtime_event *ev, err *e);
/* The beginning of an event alone: enough to know whose it is. wire_get_event looks at it again. */
int wire_get_event_head(view body, wire_event_head *h, err *e);
int wire_get_result(view body, arena *mem, wire_result *r, err *e);
int wire_get_pong(view body, wire_pong *p, err *e);

#endif
