/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's request as the runtime takes it. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

static bool is_set(double v) { return v != (double)HEARTH_UNSET; }

void hearth_request_init(hearth_request *q, size_t size) {
    const hearth_request full = { .thinking_budget = HEARTH_UNSET,
                                  .temperature = HEARTH_UNSET,
                                  .top_p = HEARTH_UNSET,
                                  .min_p = HEARTH_UNSET,
                                  .typical_p = HEARTH_UNSET,
                                  .top_k = HEARTH_UNSET,
                                  .repeat_penalty = HEARTH_UNSET,
                                  .frequency_penalty = HEARTH_UNSET,
                                  .presence_penalty = HEARTH_UNSET,
                                  .seed = HEARTH_UNSET };
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

static void read_sampling(const hearth_request *q, runtime_request *r) {
    sampling_params *p = &r->sampling;
    const struct {
        float    value;
        float   *field;
        unsigned bit;
    } rows[] = {
        { q->temperature, &p->temperature, RUNTIME_SET_TEMPERATURE },
        { q->top_p, &p->top_p, RUNTIME_SET_TOP_P },
        { q->min_p, &p->min_p, RUNTIME_SET_MIN_P },
        { q->typical_p, &p->typical_p, RUNTIME_SET_TYPICAL_P },
        { q->repeat_penalty, &p->repeat_penalty, RUNTIME_SET_REPEAT_PENALTY },
        { q->frequency_penalty, &p->frequency_penalty, RUNTIME_SET_FREQUENCY_PENALTY },
        { q->presence_penalty, &p->presence_penalty, RUNTIME_SET_PRESENCE_PENALTY },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!is_set((double)rows[i].value)) continue;
        *rows[i].field = rows[i].value;
        r->sampling_set |= rows[i].bit;
    }
    if (q->top_k != HEARTH_UNSET) {
        p->top_k = q->top_k;
        r->sampling_set |= RUNTIME_SET_TOP_K;
    }
    if (q->seed != HEARTH_UNSET) {
        p->seed = (uint64_t)q->seed;
        r->sampling_set |= RUNTIME_SET_SEED;
    }
}

static int read_enums(const hearth_request *q, runtime_request *r, err *e) {
    static const runtime_constraint_kind constraints[] = { RUNTIME_FREE,  RUNTIME_JSON, RUNTIME_SCHEMA,
                                                           RUNTIME_REGEX, RUNTIME_GBNF, RUNTIME_CHOICES };
    const struct {
        const char *name;
        int         value, last;
    } rows[] = {
        { "task", q->task, HEARTH_TASK_EMBED },        { "tool_choice", q->tool_choice, HEARTH_TOOLS_NAMED },
        { "thinking", q->thinking, HEARTH_THINK_OFF }, { "constraint", q->constraint, HEARTH_ONE_OF },
        { "pooling", q->pooling, HEARTH_POOL_LAST },
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
    *stop = NULL;
    runtime_request_init(r);
    int rc = read_enums(q, r, e);
    if (rc < 0) return rc;
    if (q->n_stop && !(*stop = calloc(q->n_stop, sizeof **stop))) return err_set_nomem(e);
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
