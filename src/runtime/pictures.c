/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures and sounds of a request: from the bytes that came with it to rows of its prompt.
 *
 * A request with any first goes to a thread that runs the towers, because that may take seconds, and from there to the
 * preparation thread like all others. What a picture or a sound is in the prompt depends on its size alone, so that counting and
 * rendering need no tower.
 */
#include "backend/backend.h"
#include "base/device_memory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
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

/* The file that was named, or the one beside the model; r->mmproj stays NULL where there is none. */
static int open_mmproj(runtime *r, const char *named, err *e) {
    char       *found = named ? NULL : pictures_find_mmproj(model_file_path(r->file));
    const char *path = named ? named : found;
    int         rc = 0;
    if (path && (rc = model_file_open(&r->mmproj, path, e)) == 0) {
        const char *arch = model_file_arch(r->mmproj);
        if (!arch || strcmp(arch, "clip") != 0)
            rc = err_set(e, ERR_FORMAT,
                         "%s: the architecture is %s; a file with a tower for pictures or sounds has \"clip\"", path,
                         arch ? arch : "not named");
    }
    free(found);
    return rc;
}

/* The token that stands for a row. */
static int find_token(const runtime *r, const char *name, const char *what, int32_t *out, err *e) {
    tok_ids ids = { 0 };
    view    word = view_of(name);
    int     rc = tok_encode(chat_tokenizer(r->chat), word.data, word.len, TOK_PARSE_SPECIAL, &ids, e);
    if (rc == 0 && ids.count != 1)
        rc = err_set(e, ERR_UNSUPPORTED, "%s: the vocabulary has no token %s, which stands for a part of a %s",
                     model_file_path(r->file), word.data, what);
    *out = rc == 0 ? ids.data[0] : -1;
    tok_ids_deinit(&ids);
    return rc;
}

static int find_sound_token(runtime *r, err *e) {
    int rc = find_token(r, ears_row_word(r->ears), "sound", &r->sound_token, e);
    while (rc == ERR_UNSUPPORTED && ears_other_word(r->ears))
        rc = find_token(r, ears_row_word(r->ears), "sound", &r->sound_token, e);
    return rc;
}

/* GGUF files of LLaVA have the vocabulary of their language model, as it was before. */
static int find_row_word(runtime *r, err *e) {
    err other;
    int rc = find_token(r, vision_row_word(r->eyes), "picture", &r->row_token, e);
    if (rc == ERR_UNSUPPORTED && vision_take_other_word(r->eyes) &&
        find_token(r, vision_row_word(r->eyes), "picture", &r->row_token, &other) == 0)
        return 0;
    return rc;
}

/* On the CPU where nobody named a device and that one cannot. A file with ears only is not one of eyes that we do not know. */
static int open_eyes(runtime *r, vision_options o, err *e) {
    int  width = r->model->dims->n_embd * r->model->tape->n_parts;
    bool leave = backend_is_auto(o.device);
    if (ears_known(r->file, r->mmproj) && !vision_known(r->file, r->mmproj)) return 0;
    int rc = vision_open(&r->eyes, r->file, r->mmproj, width, &o, e);
    if (rc == ERR_UNSUPPORTED && leave) {
        o.device = DEVICE_CPU;
        rc = vision_open(&r->eyes, r->file, r->mmproj, width, &o, e);
    }
    int axes = rc == 0 && r->eyes ? vision_axes(r->eyes) : 0, has = r->model->tape->n_axes;
    if (axes && has != axes) /* old GGUF files of HunyuanOCR say nothing of them */
        return err_set(e, ERR_UNSUPPORTED, "%s: pictures stand in positions with %d axes, and this model's have %d",
                       model_file_path(r->file), axes, has ? has : 1);
    return rc == 0 && r->eyes ? find_row_word(r, e) : rc;
}

static int open_ears(runtime *r, vision_options o, err *e) {
    int  width = r->model->dims->n_embd * r->model->tape->n_parts;
    bool leave = backend_is_auto(o.device);
    if (!ears_known(r->file, r->mmproj)) return 0;
    int rc = ears_open(&r->ears, r->file, r->mmproj, width, &o, e);
    if (rc == ERR_UNSUPPORTED && leave) {
        o.device = DEVICE_CPU;
        rc = ears_open(&r->ears, r->file, r->mmproj, width, &o, e);
    }
    return rc == 0 && r->ears ? find_sound_token(r, e) : rc;
}

static void close_eyes(runtime *r) {
    vision_free(r->eyes);
    r->eyes = NULL;
}

static void close_ears(runtime *r) {
    ears_free(r->ears);
    r->ears = NULL;
}

void pictures_close(runtime *r) {
    close_eyes(r);
    close_ears(r);
    model_file_free(r->mmproj);
    r->mmproj = NULL;
}

/* A model whose eyes or ears cannot be opened is still good for everything else, unless somebody asked for them. */
static int forgive(int rc, const err *why, const runtime_settings *s, const char *what, err *e) {
    if ((s->mmproj && !s->mmproj_may_fail) || rc == ERR_NOMEM) {
        if (e) *e = *why;
        return rc;
    }
    log_warn("vision", "the model will take no %s: %s", what, why->msg);
    return 0;
}

int pictures_open(runtime *r, const runtime_settings *s, const engine_options *g, err *e) {
    vision_options o = {
        .device = g->device, .n_threads = g->n_threads, .cpu = g->cpu, .parts = r->model->tape->n_parts
    };
    err why = { 0 };
    r->row_token = r->sound_token = -1;
    int rc = open_mmproj(r, s->mmproj, &why);
    if (rc < 0) {
        rc = forgive(rc, &why, s, "pictures and no sounds", e);
        pictures_close(r);
        return rc;
    }
    if ((rc = open_eyes(r, o, &why)) < 0) {
        close_eyes(r);
        rc = forgive(rc, &why, s, "pictures", e);
    }
    if (rc == 0 && (rc = open_ears(r, o, &why)) < 0) {
        close_ears(r);
        rc = forgive(rc, &why, s, "sounds", e);
    }
    if (rc < 0) pictures_close(r);
    return rc;
}

int pictures_span_tokens(const runtime *r) { return r->eyes ? vision_step_tokens(r->eyes) : 0; }

/* --- the prompt's text --- */

static bool is_sound(const view *blob) { return sound_is(blob->data, blob->len); }

int pictures_refuse(const runtime *r, const runtime_request *q, err *e) {
    for (size_t i = 0; i < q->n_blobs; i++) {
        bool heard = is_sound(&q->blobs[i]);
        if (heard && !r->ears)
            return err_set(e, ERR_UNSUPPORTED, "this model (%s) cannot hear: it takes no sounds", r->info.family);
        if (!heard && !r->eyes)
            return err_set(e, ERR_UNSUPPORTED, "this model (%s) cannot see: it takes no pictures", r->info.family);
    }
    if (q->n_blobs && q->task != RUNTIME_CHAT)
        return err_set(e, ERR_UNSUPPORTED, "pictures and sounds can only be part of a chat");
    if (q->n_blobs && q->n_tokens)
        return err_set(e, ERR_UNSUPPORTED,
                       "context: a conversation with pictures or sounds cannot be continued by its tokens");
    return 0;
}

chat_media pictures_words(const runtime *r, const runtime_request *q) {
    return (chat_media){ .picture = !r->eyes     ? NULL
                                    : q->n_blobs ? vision_placeholder(r->eyes)
                                                 : "",
                         .sound = !r->ears     ? NULL
                                  : q->n_blobs ? ears_said(r->ears)
                                               : "" };
}

/* Where a word stands first; a text may have any bytes, zeros too. NULL: nowhere, or the word is. */
static const char *find_word(view text, const char *what) {
    return what ? memmem(text.data, text.len, what, strlen(what)) : NULL;
}

static view behind(view text, const char *at) { return (view){ at, text.len - (size_t)(at - text.data) }; }

/* How often the placeholder stands in a text. */
static size_t occurrences(view text, const char *what) {
    size_t n = 0;
    for (const char *at; (at = find_word(text, what)); n++) text = behind(text, at + strlen(what));
    return n;
}

/* As many placeholders as there are pictures, or sounds. */
static int check_count(const runtime_request *q, view text, const char *what, bool heard, err *e) {
    size_t      n = occurrences(text, what), have = 0;
    const char *name = heard ? "sound" : "picture";
    for (size_t i = 0; i < q->n_blobs; i++) have += is_sound(&q->blobs[i]) == heard;
    if (n == have) return 0;
    return err_set(e, ERR_ARG,
                   n > have ? "%s stands for a %s and cannot be part of a text (%zu times for %zu %ss)"
                            : "the chat template shows %s, which stands for a %s, %zu times for %zu %ss",
                   what, name, n, have, name);
}

static int write_medium(const runtime *r, const view *blob, int *n_pictures, str *out, err *e) {
    pixels picture;
    int    n, rc;
    if (is_sound(blob)) {
        rc = sound_count(blob->data, blob->len, &n, e);
        return rc < 0 ? rc : ears_write(r->ears, n, out, e);
    }
    rc = pixels_view(&picture, blob->data, blob->len, e);
    return rc < 0 ? rc : vision_write(r->eyes, &picture, (*n_pictures)++, out, e);
}

int pictures_rewrite(void *ctx, str *text, err *e) {
    const pictures_text *p = ctx;
    const runtime       *r = p->owner;
    const char          *picture = r->eyes ? vision_placeholder(r->eyes) : NULL,
               *spoken = r->ears ? ears_placeholder(r->ears) : NULL;
    view from = { str_cstr(text), text->len };
    str  out;
    int  n_pictures = 0, rc = check_count(p->q, from, picture, false, e);
    if (rc == 0) rc = check_count(p->q, from, spoken, true, e);
    if (rc < 0) return rc;
    str_init(&out);
    for (size_t i = 0; rc == 0 && i < p->q->n_blobs; i++) {
        const char *seen = find_word(from, picture), *heard = find_word(from, spoken);
        bool        hears = heard && (!seen || heard < seen);
        const char *at = hears ? heard : seen;
        if (!at || hears != is_sound(&p->q->blobs[i])) {
            rc = err_set(e, ERR_ARG, "the chat template shows pictures and sounds in another order");
            break;
        }
        str_append(&out, from.data, (size_t)(at - from.data));
        rc = write_medium(r, &p->q->blobs[i], &n_pictures, &out, e);
        from = behind(from, at + strlen(hears ? spoken : picture));
    }
    str_append(&out, from.data, from.len);
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

static int encode_picture(runtime *r, const view *blob, request_picture *out, const vision_rows **rows, err *e) {
    pixels picture;
    int    rc = pixels_view(&picture, blob->data, blob->len, e);
    if (rc == 0) rc = vision_encode(r->eyes, &picture, rows, e);
    return rc < 0 ? rc : vision_grid(r->eyes, &picture, &out->place, e);
}

static bool is_over(void *ctx) { return request_is_cancelled(ctx); }

static int encode_sound(request *x, const view *blob, const vision_rows **rows, err *e) {
    sound     s;
    int       rc = sound_read(&s, blob->data, blob->len, e);
    ears_stop stop = { is_over, x };
    if (rc == 0 && x->owner->dictation.known)
        rc = dictation_listen(x, &s, &stop, rows, e);
    else if (rc == 0)
        rc = ears_encode(x->owner->ears, &s, &stop, rows, e);
    sound_deinit(&s);
    return rc;
}

/* The rows of all sounds alone, before any of them is heard, which may take minutes. */
static int check_sounds(const runtime *r, const runtime_request *q, err *e) {
    int     all = engine_context(r->engine), limit = q->n_ctx > 0 && q->n_ctx < all ? q->n_ctx : all, n;
    int64_t rows = 0;
    if (r->dictation.known && q->n_blobs != 1)
        return err_set(e, ERR_ARG, "this model (%s) writes down what is said in one sound at a time", r->info.family);
    for (size_t i = 0; i < q->n_blobs; i++) {
        if (!is_sound(&q->blobs[i])) continue;
        int rc = sound_count(q->blobs[i].data, q->blobs[i].len, &n, e);
        if (rc < 0) return err_wrap(e, rc, "sound %zu", i + 1);
        rows += ears_rows(r->ears, r->dictation.known ? 1 : n); /* its parts are all as long */
    }
    if (rows < limit) return 0; /* the prompt's other tokens are counted when it is there */
    return err_set(e, ERR_CONTEXT,
                   "the sounds alone have %lld tokens, the context holds %d and needs room for an answer (a longer "
                   "one: %s)",
                   (long long)rows, limit, limit < all ? "num_ctx" : "--ctx");
}

static int encode(request *x, err *e) {
    runtime *r = x->owner;
    int      rc = pictures_refuse(r, &x->q, e);
    if (rc == 0) rc = check_sounds(r, &x->q, e);
    if (rc < 0) return rc;
    if (!x->pictures) x->pictures = arena_calloc(&x->mem, x->q.n_blobs, sizeof *x->pictures);
    if (!x->pictures) return err_set_nomem(e);
    for (size_t i = 0; i < x->q.n_blobs; i++) {
        const view        *blob = &x->q.blobs[i];
        request_picture   *p = &x->pictures[i];
        const vision_rows *rows;
        p->sound = is_sound(blob);
        if (request_is_cancelled(x)) return ERR_CANCELLED;
        rc = p->sound ? encode_sound(x, blob, &rows, e) : encode_picture(r, blob, p, &rows, e);
        if (rc < 0) return err_wrap(e, rc, p->sound ? "sound %zu" : "picture %zu", i + 1);
        size_t floats = (size_t)rows->n * (size_t)rows->width;
        /* Parts of a sound have rows in the same place, one after the other. */
        float *copy = x->heard.again ? p->rows.data : arena_alloc(&x->mem, floats * sizeof *copy);
        if (!copy) return err_set_nomem(e);
        memcpy(copy, rows->data, floats * sizeof *copy);
        p->rows = *rows;
        p->rows.data = copy;
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
                        .across = p->place.across,
                        .advance = p->place.advance,
                        .counted = p->place.counted };
    memcpy(s->content, digest, sizeof s->content);
}

/* The word for a row may lie behind the model's vocabulary, where nothing is looked up for it: any token will do. */
static void hide_rows(prompt *p, int32_t word, int64_t n_vocab) {
    for (size_t i = 0; word >= n_vocab && i < p->ids.count; i++) {
        if (p->ids.data[i] == word) p->ids.data[i] = 0;
    }
}

/* Whether a token stands for a row, and of what. */
static bool stands(const runtime *r, int32_t id, bool *heard) {
    *heard = id == r->sound_token && r->ears;
    return *heard || (id == r->row_token && r->eyes);
}

/* The spans of a run of rows of one kind; pictures may stand side by side. Returns where it could not go on. */
static size_t place_run(const request *x, size_t i, size_t end, bool heard, engine_rows *out, size_t *n, size_t *medium,
                        int *used) {
    while (i < end && *medium < x->q.n_blobs && x->pictures[*medium].sound == heard) {
        const request_picture *p = &x->pictures[*medium];
        int                    left = p->rows.n - *used, take = (int)(end - i) < left ? (int)(end - i) : left;
        fill_span(&out[(*n)++], p, *used, (int)i, take, !heard && vision_whole(x->owner->eyes));
        i += (size_t)take;
        *used += take;
        if (*used == p->rows.n) {
            ++*medium;
            *used = 0;
        }
    }
    return i;
}

int pictures_place(const request *x, prompt *p, engine_rows **out, size_t *n_out, err *e) {
    const runtime *r = x->owner;
    const int32_t *ids = p->ids.data;
    size_t         n = 0, medium = 0, count = p->ids.count, i = 0;
    int            used = 0; /* rows of the medium at hand */
    bool           heard = false, other;
    *out = calloc(count ? count : 1, sizeof **out);
    *n_out = 0;
    if (!*out) return err_set_nomem(e);
    while (i < count) {
        size_t end = i;
        if (!stands(r, ids[i], &heard)) {
            i++;
            continue;
        }
        while (end < count && stands(r, ids[end], &other) && other == heard) end++;
        i = place_run(x, i, end, heard, *out, &n, &medium, &used);
        if (i < end) break;
    }
    if (i == count && medium == x->q.n_blobs && used == 0) {
        if (r->eyes) hide_rows(p, r->row_token, r->info.n_vocab);
        if (r->ears) hide_rows(p, r->sound_token, r->info.n_vocab);
        *n_out = n;
        return 0;
    }
    if (medium < x->q.n_blobs) heard = x->pictures[medium].sound;
    free(*out);
    *out = NULL;
    return err_set(e, ERR_ARG, "%s stands for a part of a %s and cannot be part of a text",
                   heard ? ears_row_word(r->ears) : vision_row_word(r->eyes), heard ? "sound" : "picture");
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
