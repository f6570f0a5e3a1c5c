/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's request as the runtime takes it. */
#include "api/api.h"

#include "base/num.h"
#include "pixels/pixels.h"

#include <stdlib.h>
#include <string.h>

/* The members that are parameters of the table; their types are those of sampling_params, the seed's is signed. */
static const struct {
    sampling_param param;
    size_t         offset;
} members[] = {
#define MEMBER(ID, name)                                                                                               \
    { SAMPLING_PARAM_##ID, offsetof(hearth_request, name) }
    MEMBER(TEMPERATURE, temperature),
    MEMBER(TOP_P, top_p),
    MEMBER(MIN_P, min_p),
    MEMBER(TYPICAL_P, typical_p),
    MEMBER(TOP_K, top_k),
    MEMBER(REPEAT_PENALTY, repeat_penalty),
    MEMBER(FREQUENCY_PENALTY, frequency_penalty),
    MEMBER(PRESENCE_PENALTY, presence_penalty),
    MEMBER(SEED, seed),
};
enum { N_MEMBERS = sizeof members / sizeof members[0] };

static void unset(hearth_request *q, size_t i) {
    void *at = (char *)q + members[i].offset;
    switch (sampling_param_fields[members[i].param].type) {
    case SAMPLING_IS_FLOAT: *(float *)at = (float)HEARTH_UNSET; break;
    case SAMPLING_IS_INT: *(int *)at = HEARTH_UNSET; break;
    case SAMPLING_IS_UINT64: *(int64_t *)at = HEARTH_UNSET; break;
    }
}

void hearth_request_init(hearth_request *q, size_t size) {
    hearth_request full = { .thinking_budget = HEARTH_UNSET };
    for (size_t i = 0; i < N_MEMBERS; i++) unset(&full, i);
    memset(q, 0, size);
    memcpy(q, &full, size < sizeof full ? size : sizeof full);
    q->size = size;
}

int api_request(const hearth_request *q, hearth_request *full, err *e) {
    hearth_request_init(full, sizeof *full);
    if (!q || q->size < offsetof(hearth_request, messages))
        return err_set(e, ERR_ARG, "request: call hearth_request_init first");
    memcpy(full, q, q->size < sizeof *full ? q->size : sizeof *full);
    full->size = sizeof *full;
    return 0;
}

static view text_of(const char *text) { return text ? view_of(text) : (view){ 0 }; }

/* Ranges are the runtime's to check, as for every request. */
static void read_sampling(const hearth_request *q, runtime_request *r) {
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const sampling_param p = members[i].param;
        const void          *at = (const char *)q + members[i].offset;
        if (sampling_param_fields[p].type == SAMPLING_IS_FLOAT) {
            if (*(const float *)at == (float)HEARTH_UNSET) continue;
            sampling_set_real(&r->sampling, p, (double)*(const float *)at);
        } else {
            int64_t v = sampling_param_fields[p].type == SAMPLING_IS_INT ? *(const int *)at : *(const int64_t *)at;
            if (v == HEARTH_UNSET || (p == SAMPLING_PARAM_SEED && v == SAMPLING_RANDOM_SEED)) continue;
            sampling_set_int(&r->sampling, p, v);
        }
        r->sampling_set |= runtime_set_bits[p];
    }
}

static int read_enums(const hearth_request *q, runtime_request *r, err *e) {
    static const runtime_constraint_kind constraints[] = { RUNTIME_FREE,  RUNTIME_JSON, RUNTIME_SCHEMA,
                                                           RUNTIME_REGEX, RUNTIME_GBNF, RUNTIME_CHOICES };
    const struct {
        const char *name;
        int         value, last;
    } rows[] = {
        { "task", q->task, HEARTH_TASK_RERANK },       { "tool_choice", q->tool_choice, HEARTH_TOOLS_NAMED },
        { "thinking", q->thinking, HEARTH_THINK_OFF }, { "constraint", q->constraint, HEARTH_ONE_OF },
        { "pooling", q->pooling, HEARTH_POOL_MAX },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].value < 0 || rows[i].value > rows[i].last)
            return err_set(e, ERR_ARG, "%s: %d is unknown", rows[i].name, rows[i].value);
    }
    r->task = (runtime_task)q->task; /* the enumerations agree, as far as they go */
    r->tool_choice = (runtime_tool_choice)q->tool_choice;
    r->thinking = (runtime_thinking)q->thinking;
    r->pooling = (runtime_pooling)q->pooling;
    r->constraint.kind = constraints[q->constraint];
    return 0;
}

/* Bytes of a picture as the runtime takes it; 0: it cannot be one. */
static size_t picture_bytes(const hearth_picture *p) {
    size_t area = 0, bytes = 0;
    if (!p->rgb || p->width <= 0 || p->height <= 0 || !num_mul_size((size_t)p->width, (size_t)p->height, &area) ||
        !num_mul_size(area, PIXELS_CHANNELS, &bytes) || bytes > RUNTIME_MAX_BLOB_BYTES)
        return 0;
    return bytes + PIXELS_HEAD_BYTES;
}

static int check_pictures(const hearth_request *q, size_t *bytes, err *e) {
    *bytes = 0;
    if (q->n_pictures > RUNTIME_MAX_BLOBS) return err_set(e, ERR_ARG, "pictures: %d at most", RUNTIME_MAX_BLOBS);
    for (size_t i = 0; i < q->n_pictures; i++) {
        size_t one = picture_bytes(&q->pictures[i]);
        if (!one || (*bytes += one) > RUNTIME_MAX_BLOB_BYTES)
            return err_set(e, ERR_ARG, "pictures: number %zu of %d x %d cannot be taken", i, q->pictures[i].width,
                           q->pictures[i].height);
    }
    return 0;
}

/* Their bytes go to `to`. */
static void put_pictures(const hearth_request *q, view *blobs, char *to) {
    for (size_t i = 0; i < q->n_pictures; i++) {
        const hearth_picture *p = &q->pictures[i];
        const int32_t         head[2] = { p->width, p->height };
        size_t                n = picture_bytes(p);
        _Static_assert(sizeof head == PIXELS_HEAD_BYTES, "width and height");
        memcpy(to, head, sizeof head);
        memcpy(to + sizeof head, p->rgb, n - sizeof head);
        blobs[i] = (view){ to, n };
        to += n;
    }
}

int api_runtime_request(const hearth_request *q, runtime_request *r, view **stop, err *e) {
    size_t all_pictures = 0;
    *stop = NULL;
    runtime_request_init(r);
    int rc = read_enums(q, r, e);
    if (rc == 0) rc = check_pictures(q, &all_pictures, e);
    if (rc < 0) return rc;
    if (q->n_adapters > RUNTIME_MAX_LORA)
        return err_set(e, ERR_ARG, "adapters: at most %d can be used at once", RUNTIME_MAX_LORA);
    /* One block for the lists and the pictures. */
    size_t bytes = (q->n_stop + q->n_pictures) * sizeof **stop + q->n_adapters * sizeof(runtime_lora) + all_pictures;
    if (bytes && !(*stop = calloc(1, bytes))) return err_set_nomem(e);
    runtime_lora *lora = bytes ? (runtime_lora *)(void *)(*stop + q->n_stop + q->n_pictures) : NULL;
    if (q->n_pictures) {
        put_pictures(q, *stop + q->n_stop, (char *)(lora + q->n_adapters));
        r->blobs = *stop + q->n_stop;
        r->n_blobs = q->n_pictures;
    }
    for (size_t i = 0; i < q->n_adapters; i++)
        lora[i] = (runtime_lora){ text_of(q->adapters[i].path), q->adapters[i].scale };
    r->lora = lora;
    r->n_lora = q->n_adapters;
    for (size_t i = 0; i < q->n_stop; i++) (*stop)[i] = text_of(q->stop[i]);
    r->stop = *stop;
    r->n_stop = q->n_stop;
    r->messages = text_of(q->messages);
    r->tools = text_of(q->tools);
    r->template_vars = text_of(q->template_vars);
    r->continue_final = q->continue_last != 0;
    r->tool_name = text_of(q->tool_name);
    r->parallel_tools = !q->one_tool_call;
    r->thinking_budget = q->thinking_budget == HEARTH_UNSET ? -1 : q->thinking_budget;
    r->effort = text_of(q->effort);
    r->text = text_of(q->text);
    r->suffix = text_of(q->suffix);
    r->tokens = q->tokens;
    r->n_tokens = q->n_tokens;
    r->dimensions = q->dimensions;
    r->prompt_name = text_of(q->prompt_name);
    r->prompt_is_side = q->prompt_side != 0;
    r->constraint.text = text_of(q->constraint_text);
    read_sampling(q, r);
    r->max_tokens = q->max_tokens;
    r->n_choices = q->n_answers;
    r->priority = q->priority;
    r->want_logprob = q->logprobs != 0;
    r->n_top = q->top_logprobs;
    r->want_progress = q->progress != 0;
    return 0;
}
