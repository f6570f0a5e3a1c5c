/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System messages where a template has no place for them.
 *
 * Clients put them anywhere: several at the beginning, one in the middle of a conversation. Many templates take one at
 * the beginning only; others raise an error or pass over it without a word. What a template takes is found by rendering
 * probes. Where it takes less than a conversation has, leading system messages are joined into one, and a later one is
 * text of the user's turn at its own place: in front of everything it would change the beginning of the prompt, and
 * nothing of the conversation could be taken from the cache.
 */
#ifndef CHAT_TURNS_H
#define CHAT_TURNS_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>

typedef enum chat_system_place {
    CHAT_SYSTEM_ANYWHERE,
    CHAT_SYSTEM_LEADING, /* any number, at the beginning */
    CHAT_SYSTEM_FIRST,   /* one, at the beginning */
    CHAT_SYSTEM_NOWHERE,
} chat_system_place;

/* Renders messages; true: `want` stands in the result. */
typedef bool (*chat_turns_probe)(void *ctx, const char *messages, const char *want);
chat_system_place chat_turns_find(chat_turns_probe probe, void *ctx);

/* Replaces the array `all` by one that the template takes; its messages have texts as contents. */
int chat_turns_fold(chat_system_place place, json_value *all, arena *a, err *e);

#endif
