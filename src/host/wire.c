/* SPDX-License-Identifier: Apache-2.0 */
/* Frames, and which table describes the body of which. */
#include "host/wire.h"

#include "host/wire_tables.h"

#include <string.h>

static const wire_table nothing = { .name = "nothing" };

/* --- frames --- */

static void put_head(char *to, size_t bytes, wire_type type, uint64_t id) {
    uint32_t n = (uint32_t)bytes;
    memcpy(to, &n, 4);
    to[4] = WIRE_VERSION;
    to[5] = (char)type;
    to[6] = to[7] = 0;
    memcpy(to + 8, &id, 8);
}

int wire_next(const char *data, size_t bytes, bool up, wire_frame *out, size_t *used, err *e) {
    uint32_t n;
    if (bytes < WIRE_HEAD_BYTES) {
        *used = WIRE_HEAD_BYTES;
        return 0;
    }
    memcpy(&n, data, 4);
    memcpy(&out->id, data + 8, 8);
    unsigned version = (unsigned char)data[4], type = (unsigned char)data[5];
    if (version != WIRE_VERSION) return err_set(e, ERR_FORMAT, "a frame of version %u, not %d", version, WIRE_VERSION);
    if (type >= WIRE_TYPE_COUNT || (type >= WIRE_FIRST_UP) != up || data[6] || data[7])
        return err_set(e, ERR_FORMAT, "a frame of unknown type %u", type);
    if (n > (up ? WIRE_MAX_UP : WIRE_MAX_DOWN)) return err_set(e, ERR_LIMIT, "a frame of %u bytes", n);
    *used = WIRE_HEAD_BYTES + (size_t)n;
    if (bytes < *used) return 0;
    out->type = (wire_type)type;
    out->body = (view){ data + WIRE_HEAD_BYTES, n };
    return 1;
}

static int put(str *out, wire_type type, uint64_t id, const wire_table *t, const void *message, err *e) {
    size_t begin = out->len;
    int    rc = wire_encode(out, WIRE_HEAD_BYTES, t, message, e);
    if (rc < 0) return rc;
    size_t bytes = out->len - begin - WIRE_HEAD_BYTES;
    if (bytes > (type >= WIRE_FIRST_UP ? WIRE_MAX_UP : WIRE_MAX_DOWN)) {
        out->len = begin;
        return err_set(e, ERR_LIMIT, "request is too long");
    }
    put_head(out->data + begin, bytes, type, id);
    return 0;
}

/* Into a struct whose members all come from the frame. */
static int get(view body, const wire_table *t, arena *mem, void *message, err *e) {
    memset(message, 0, t->bytes);
    return wire_decode(body, t, mem, message, e);
}

/* --- down --- */

int wire_put_empty(str *out, wire_type type, uint64_t id, err *e) { return put(out, type, id, &nothing, NULL, e); }

int wire_put_open(str *out, const wire_open *o, err *e) { return put(out, WIRE_OPEN, 0, &wire_table_open, o, e); }

int wire_get_open(view body, arena *mem, wire_open *o, err *e) { return get(body, &wire_table_open, mem, o, e); }

int wire_put_request(str *out, wire_type type, uint64_t id, const runtime_request *q, err *e) {
    return put(out, type, id, &wire_table_request, q, e);
}

int wire_get_request(view body, arena *mem, runtime_request *q, err *e) {
    return wire_decode(body, &wire_table_request, mem, q, e);
}

int wire_put_text_call(str *out, uint64_t id, const wire_text_call *c, err *e) {
    return put(out, WIRE_TOKENIZE, id, &wire_table_text_call, c, e);
}

int wire_get_text_call(view body, wire_text_call *c, err *e) { return get(body, &wire_table_text_call, NULL, c, e); }

int wire_put_ids_call(str *out, uint64_t id, const wire_ids_call *c, err *e) {
    return put(out, WIRE_DETOKENIZE, id, &wire_table_ids_call, c, e);
}

int wire_get_ids_call(view body, arena *mem, wire_ids_call *c, err *e) {
    return get(body, &wire_table_ids_call, mem, c, e);
}

int wire_put_ping(str *out, uint64_t id, int level, err *e) {
    return put(out, WIRE_PING, id, &wire_table_ping, &level, e);
}

int wire_get_ping(view body, int *level, err *e) { return get(body, &wire_table_ping, NULL, level, e); }

/* --- up --- */

int wire_put_need(str *out, const need *n, err *e) { return put(out, WIRE_NEED, 0, &wire_table_need, n, e); }

int wire_get_need(view body, need *n, err *e) { return get(body, &wire_table_need, NULL, n, e); }

int wire_put_loading(str *out, float fraction, err *e) {
    return put(out, WIRE_LOADING, 0, &wire_table_loading, &fraction, e);
}

int wire_get_loading(view body, float *fraction, err *e) { return get(body, &wire_table_loading, NULL, fraction, e); }

int wire_put_ready(str *out, const runtime_info *i, err *e) { return put(out, WIRE_READY, 0, &wire_table_info, i, e); }

int wire_get_ready(view body, arena *mem, runtime_info *i, err *e) { return get(body, &wire_table_info, mem, i, e); }

int wire_put_failed(str *out, const err *why, err *e) { return put(out, WIRE_FAILED, 0, &wire_table_err, why, e); }

int wire_get_failed(view body, err *why, err *e) { return get(body, &wire_table_err, NULL, why, e); }

int wire_put_event(str *out, uint64_t id, const runtime_event *ev, err *e) {
    return put(out, WIRE_EVENT, id, &wire_table_event, ev, e);
}

int wire_get_event(view body, arena *mem, runtime_event *ev, err *e) {
    return get(body, &wire_table_event, mem, ev, e);
}

int wire_put_result(str *out, uint64_t id, const wire_result *r, err *e) {
    return put(out, WIRE_RESULT, id, &wire_table_result, r, e);
}

int wire_get_result(view body, arena *mem, wire_result *r, err *e) { return get(body, &wire_table_result, mem, r, e); }

int wire_put_pong(str *out, uint64_t id, const wire_pong *p, err *e) {
    return put(out, WIRE_PONG, id, &wire_table_pong, p, e);
}

int wire_get_pong(view body, wire_pong *p, err *e) { return get(body, &wire_table_pong, NULL, p, e); }
