/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of one model: $XDG_CONFIG_HOME/hearth/models/NAME.yaml, and the registry's tag `settings` (the same keys as
 * JSON, which is YAML). In the file's name '/' and ':' of the model's name are written "__".
 *
 *     context: 16384                      # positions of a sequence
 *     system: You are brief.              # for chats that bring no system message
 *     template_file: my.jinja             # or template: |  with the text
 *     sampling: { temperature: 0.7, stop: ["###"] }
 *     presets: { precise: { temperature: 0 } }
 *     preset: precise                     # laid over sampling
 *     messages: [ { role: user, content: Hi. }, { role: assistant, content: Hello. } ]   # before every chat
 *     rope_scaling: { type: yarn, factor: 4, original_context: 8192 }
 *     keep_alive: 1h
 *     pinned: true
 *
 *     adapters: [ { path: /data/french, scale: 0.8 } ]
 *     mmproj: mmproj-f16.gguf             # the model's vision tower
 *
 * draft is refused by name until there is something that uses it.
 */
#ifndef CONFIG_MODEL_H
#define CONFIG_MODEL_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "config/schema.h"
#include "params/sampling_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One bit per key of sampling that is set: a parameter's, and those behind the table. */
#define CONFIG_SET(param) (1u << (param))
enum {
    CONFIG_SET_MAX_TOKENS = 1 << SAMPLING_PARAM_COUNT,
    CONFIG_SET_MIN_TOKENS = 1 << (SAMPLING_PARAM_COUNT + 1),
    CONFIG_SET_STOP = 1 << (SAMPLING_PARAM_COUNT + 2),
};

typedef struct config_sampling {
    unsigned           set;    /* CONFIG_SET*; what is not set has its default */
    sampling_params    values; /* its arrays are not used; a seed may be SAMPLING_RANDOM_SEED */
    int                max_tokens, min_tokens;
    const char *const *stop;
    size_t             n_stop;
} config_sampling;

typedef struct config_message {
    const char *role, *content; /* system, user or assistant */
} config_message;

typedef struct config_adapter {
    const char *path;
    double      scale;
} config_adapter;

typedef struct config_model {
    int             context;                                                   /* 0: not set */
    const char     *system, *template_text, *template_file, *preset, *license; /* NULL: not set */
    config_sampling sampling;                                                  /* with the chosen preset over it */
    config_message *messages;
    size_t          n_messages;
    config_adapter *adapters;
    size_t          n_adapters;
    const char     *adapter_type; /* NULL: not set */
    const char     *rope_type;    /* NULL: the model's own rule */
    double          rope_factor;
    int             rope_original_context;                 /* 0: not set */
    const char     *speculate, *draft;                     /* NULL: not set */
    int             draft_max;                             /* 0: not set */
    const char     *mmproj;                                /* NULL: not set */
    const char     *page_type, *page_type_k, *page_type_v; /* NULL: not set */
    int             precise_layers;                        /* -1: not set */
    bool            keep_alive_set, pinned;
    double          keep_alive_s; /* negative: for ever */
    arena           mem;
} config_model;

extern const config_schema config_model_schema;

/* Reads YAML or JSON text. label names the file in messages. On success the caller releases *out with deinit; on
 * failure e holds the first problem and how many follow. */
int  config_model_read(config_model *out, view text, const char *label, err *e);
void config_model_deinit(config_model *m); /* accepts a zeroed one */

/* From values that are laid over each other already; texts are copied. The preset must exist. */
int config_model_from(config_model *out, const config_values *v, err *e);

/* Adds what the table cannot say: a template given twice, a preset that is not there, roles. */
void config_model_check(const config_values *v, config_report *r);

/* "owner/repo:tag" -> "owner__repo__tag.yaml" */
void config_model_file_name(const char *model, str *out);

#endif
