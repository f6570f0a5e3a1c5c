/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's request as the runtime takes it. */
#include "api/api.h"
#include "api/media.h"

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

int api_runtime_request(const hearth_request *q, runtime_request *r, view **stop, err *e) {
    api_media m = { 0 };
    *stop = NULL;
    runtime_request_init(r);
    int rc = read_enums(q, r, e);
    if (rc == 0 && q->n_adapters > RUNTIME_MAX_LORA)
        rc = err_set(e, ERR_ARG, "adapters: at most %d can be used at once", RUNTIME_MAX_LORA);
    if (rc == 0) rc = api_media_read(&m, q, e);
    if (rc < 0) return rc;
    /* One block for the lists, the pictures and the sounds. */
    size_t bytes = (q->n_stop + m.n) * sizeof **stop + q->n_adapters * sizeof(runtime_lora) + m.bytes;
    if (bytes && !(*stop = calloc(1, bytes))) {
        api_media_free(&m);
        return err_set_nomem(e);
    }
    runtime_lora *lora = bytes ? (runtime_lora *)(void *)(*stop + q->n_stop + m.n) : NULL;
    if (m.n) {
        api_media_put(&m, q, *stop + q->n_stop, (char *)(lora + q->n_adapters));
        r->blobs = *stop + q->n_stop;
        r->n_blobs = m.n;
    }
    api_media_free(&m);
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
