/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures of a request: from the bytes that came with it to rows of its prompt.
 *
 * A request with pictures first goes to a thread that runs the tower, because that may take seconds, and from there to the
 * preparation thread like all others. What a picture is in the prompt depends on its size alone, so that counting and
 * rendering need no tower.
 */
#include "backend/backend.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "runtime/device_memory.h"
#include "runtime/internal.h"

#include <dirent.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

/* --- the file beside the model --- */

/* Letters at the beginning that two names share. */
static size_t shared(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

char *pictures_find_mmproj(const char *model) {
    char *copy = strdup(model), *name = copy ? strdup(model) : NULL, *best = NULL;
    DIR  *d = name && view_ends(view_of(model), ".gguf") && !dir_exists(model) ? opendir(dirname(copy)) : NULL;
    for (struct dirent *x; d && (x = readdir(d));) {
        if (!strstr(x->d_name, "mmproj") || !view_ends(view_of(x->d_name), ".gguf")) continue;
        if (strcmp(x->d_name, basename(name)) == 0) { /* it is one itself */
            free(best);
            best = NULL;
            break;
        }
        /* The one whose name begins most like the model's; of equals the first by name. */
        const char *own = strncmp(x->d_name, "mmproj-", 7) == 0 ? x->d_name + 7 : x->d_name;
        const char *old = best && strncmp(best, "mmproj-", 7) == 0 ? best + 7 : best;
        size_t      is = shared(own, basename(name)), was = old ? shared(old, basename(name)) : 0;
        if (best && (is < was || (is == was && strcmp(x->d_name, best) > 0))) continue;
        free(best);
        best = strdup(x->d_name);
    }
    char *path = best ? path_join(copy, best) : NULL;
    if (d) closedir(d);
    free(best);
    free(name);
    free(copy);
    return path;
}

static int open_eyes(runtime *r, const char *mmproj, const engine_options *g, err *e) {
    vision_options o = { .device = g->device, .n_threads = g->n_threads, .cpu = g->cpu };
    char          *found = mmproj ? NULL : pictures_find_mmproj(model_file_path(r->file));
    const char    *path = mmproj ? mmproj : found;
    int            rc = 0;
    if (path && (rc = model_file_open(&r->mmproj, path, e)) == 0) {
        const char *arch = model_file_arch(r->mmproj);
        if (!arch || strcmp(arch, "clip") != 0)
            rc = err_set(e, ERR_FORMAT, "%s: the architecture is %s; a file with a vision tower has \"clip\"", path,
                         arch ? arch : "not named");
    }
    int width = r->model->dims->n_embd * r->model->tape->n_parts;
    if (rc == 0) rc = vision_open(&r->eyes, r->file, r->mmproj, width, &o, e);
    if (rc == ERR_UNSUPPORTED && backend_is_auto(g->device)) { /* of a device that nobody named */
        o.device = NEED_CPU;
        rc = vision_open(&r->eyes, r->file, r->mmproj, width, &o, e);
    }
    free(found);
    if (rc < 0 || !r->eyes) return rc;
    tok_ids ids = { 0 };
    view    word = view_of(vision_row_word(r->eyes));
    rc = tok_encode(chat_tokenizer(r->chat), word.data, word.len, TOK_PARSE_SPECIAL, &ids, e);
    if (rc == 0 && ids.count != 1)
        rc = err_set(e, ERR_UNSUPPORTED, "%s: the vocabulary has no token %s, which stands for a part of a picture",
                     model_file_path(r->file), word.data);
    r->row_token = rc == 0 ? ids.data[0] : -1;
    tok_ids_deinit(&ids);
    return rc;
}

void pictures_close(runtime *r) {
    vision_free(r->eyes);
    model_file_free(r->mmproj);
    r->eyes = NULL;
    r->mmproj = NULL;
}

/* A model whose eyes cannot be opened is still good for text, unless somebody asked for them. */
int pictures_open(runtime *r, const runtime_settings *s, const engine_options *g, err *e) {
    err why = { 0 };
    int rc = open_eyes(r, s->mmproj, g, &why);
    if (rc == 0) return 0;
    pictures_close(r);
    if ((s->mmproj && !s->mmproj_may_fail) || rc == ERR_NOMEM) {
        if (e) *e = why;
        return rc;
    }
    log_warn("vision", "the model will take no pictures: %s", why.msg);
    return 0;
}

int pictures_span_tokens(const runtime *r) { return r->eyes && vision_whole(r->eyes) ? vision_most_rows(r->eyes) : 0; }

/* --- the prompt's text --- */

/* How often the placeholder stands in a text. */
static size_t occurrences(const char *text, const char *what) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

int pictures_rewrite(void *ctx, str *text, err *e) {
    const pictures_text *p = ctx;
    const vision        *eyes = p->owner->eyes;
    const char          *what = vision_placeholder(eyes), *from = str_cstr(text), *at;
    size_t               i = 0, n = occurrences(from, what);
    str                  out;
    int                  rc = 0;
    if (n != p->q->n_blobs)
        return err_set(e, ERR_ARG,
                       n > p->q->n_blobs
                           ? "%s stands for a picture and cannot be part of a text (%zu times for %zu pictures)"
                           : "the chat template shows %s %zu times for %zu pictures",
                       what, n, p->q->n_blobs);
    str_init(&out);
    for (; rc == 0 && (at = strstr(from, what)); from = at + strlen(what), i++) {
        pixels picture;
        str_append(&out, from, (size_t)(at - from));
        rc = pixels_view(&picture, p->q->blobs[i].data, p->q->blobs[i].len, e);
        if (rc == 0) rc = vision_write(eyes, &picture, &out, e);
    }
    str_puts(&out, from);
    if (rc == 0 && !str_ok(&out)) rc = err_set_nomem(e);
    if (rc < 0) {
        str_deinit(&out);
        return rc;
    }
    str_deinit(text);
    *text = out;
    return 0;
}

/* --- the rows --- */

static int encode(request *x, err *e) {
    runtime *r = x->owner;
    x->pictures = arena_calloc(&x->mem, x->q.n_blobs, sizeof *x->pictures);
    if (!x->pictures) return err_set_nomem(e);
    for (size_t i = 0; i < x->q.n_blobs; i++) {
        const vision_rows *rows;
        pixels             picture;
        int                rc = pixels_view(&picture, x->q.blobs[i].data, x->q.blobs[i].len, e);
        if (rc == 0 && request_is_cancelled(x)) rc = ERR_CANCELLED;
        if (rc == 0) rc = vision_encode(r->eyes, &picture, &rows, e);
        if (rc < 0) return rc == ERR_CANCELLED ? rc : err_wrap(e, rc, "picture %zu", i + 1);
        size_t floats = (size_t)rows->n * (size_t)rows->width;
        float *copy = arena_alloc(&x->mem, floats * sizeof *copy);
        if (!copy) return err_set_nomem(e);
        memcpy(copy, rows->data, floats * sizeof *copy);
        x->pictures[i].rows = *rows;
        x->pictures[i].rows.data = copy;
        rc = vision_grid(r->eyes, &picture, &x->pictures[i].across, &x->pictures[i].advance, e);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Rows that stand together are one span; its key says which of the picture's rows they are. */
static void fill_span(engine_rows *s, const request_picture *p, int from, int first, int n, bool whole) {
    const vision_rows *v = &p->rows;
    uint8_t            digest[SHA256_BYTES];
    int32_t            part[2] = { from, n };
    sha256             h;
    sha256_init(&h);
    sha256_feed(&h, v->key, sizeof v->key);
    sha256_feed(&h, part, sizeof part);
    sha256_finish(&h, digest);
    *s = (engine_rows){ .first = first,
                        .n = n,
                        .embd = v->data + (size_t)from * (size_t)v->width,
                        .whole = whole,
                        .across = p->across,
                        .advance = p->advance };
    memcpy(s->content, digest, sizeof s->content);
}

/* The word for a row may lie behind the model's vocabulary, where nothing is looked up for it: any token will do. */
static void hide_rows(prompt *p, int32_t word, int64_t n_vocab) {
    for (size_t i = 0; word >= n_vocab && i < p->ids.count; i++) {
        if (p->ids.data[i] == word) p->ids.data[i] = 0;
    }
}

int pictures_place(const request *x, prompt *p, engine_rows **out, size_t *n_out, err *e) {
    const runtime *r = x->owner;
    const int32_t *ids = p->ids.data;
    size_t         n = 0, picture = 0, count = p->ids.count;
    int            used = 0; /* rows of the picture at hand */
    *out = calloc(count ? count : 1, sizeof **out);
    *n_out = 0;
    if (!*out) return err_set_nomem(e);
    for (size_t i = 0; i < count;) {
        size_t end = i;
        while (end < count && ids[end] == r->row_token) end++;
        if (end == i) {
            i++;
            continue;
        }
        while (i < end && picture < x->q.n_blobs) { /* pictures may stand side by side */
            const request_picture *p_at = &x->pictures[picture];
            const vision_rows     *v = &p_at->rows;
            int                    take = (int)(end - i) < v->n - used ? (int)(end - i) : v->n - used;
            fill_span(&(*out)[n++], p_at, used, (int)i, take, vision_whole(r->eyes));
            i += (size_t)take;
            used += take;
            if (used == v->n) {
                picture++;
                used = 0;
            }
        }
        if (i < end) break;
    }
    if (picture == x->q.n_blobs && used == 0) {
        size_t all = 0;
        for (size_t k = 0; k < n; k++) all += (size_t)(*out)[k].n;
        size_t there = 0;
        for (size_t k = 0; k < count; k++) there += ids[k] == r->row_token;
        if (all == there) {
            hide_rows(p, r->row_token, r->info.n_vocab);
            *n_out = n;
            return 0;
        }
    }
    free(*out);
    *out = NULL;
    return err_set(e, ERR_ARG, "%s stands for a part of a picture and cannot be part of a text",
                   vision_row_word(r->eyes));
}

void *pictures_main(void *arg) {
    runtime *r = arg;
    void    *item;
    while (queue_pop(r->looking, &item)) {
        request *x = item;
        err      e = { 0 };
        pthread_mutex_lock(&r->lock);
        bool over = r->closing || x->cancelled;
        pthread_mutex_unlock(&r->lock);
        int rc = over ? ERR_CANCELLED : encode(x, &e);
        if (rc == 0 && queue_try_push(r->incoming, x)) continue;
        if (rc == 0) rc = err_set(&e, ERR_BUSY, "the queue is full: too many requests are waiting to be prepared");
        if (rc == ERR_CANCELLED)
            request_end_cancelled(x);
        else
            request_fail(x, &e);
        request_unref(x);
    }
    return NULL;
}
