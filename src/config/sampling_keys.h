/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of sampling, which stand in server.yaml and in a model's settings (below "sampling"), and in every preset:
 * the parameters of the table, and what else ends an answer.
 */
#ifndef CONFIG_SAMPLING_KEYS_H
#define CONFIG_SAMPLING_KEYS_H

#include "config/schema.h"
#include "params/sampling_table.h"

/* clang-format off */
#define CONFIG_SAMPLING_KEY(ID, MEMBER, KIND, KEY, LOW, HIGH, DEFAULT, GROUP, ENV, FLAG, VALUE, HELP) \
    { .path = "sampling." KEY, .type = CONFIG_##KIND, .min = LOW, .max = HIGH, .help = HELP, .env = ENV, .flag = FLAG },
#define CONFIG_PRESET_KEY(ID, MEMBER, KIND, KEY, LOW, HIGH, DEFAULT, GROUP, ENV, FLAG, VALUE, HELP) \
    { .path = KEY, .type = CONFIG_##KIND, .min = LOW, .max = HIGH, .help = HELP, .env = ENV, .flag = FLAG },

#define CONFIG_ENDING_KEYS(P) \
    { .path = P "max_tokens", \
      .type = CONFIG_INT, \
      .max = 2147483647, \
      .help = "end an answer after this many tokens; 0: when the context is full", \
      .env = "HEARTH_MAX_TOKENS", \
      .flag = "max-tokens" }, \
    { .path = P "min_tokens", \
      .type = CONFIG_INT, \
      .max = 2147483647, \
      .help = "do not end an answer before this many tokens", \
      .env = "HEARTH_MIN_TOKENS" }, \
    { .path = P "stop", .type = CONFIG_TEXTS, .help = "texts before which an answer ends", .flag = "stop" }

#define CONFIG_SAMPLING_KEYS SAMPLING_TABLE(CONFIG_SAMPLING_KEY) CONFIG_ENDING_KEYS("sampling.")
#define CONFIG_PRESET_KEYS SAMPLING_TABLE(CONFIG_PRESET_KEY) CONFIG_ENDING_KEYS("")
/* clang-format on */

#endif
