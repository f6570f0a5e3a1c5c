/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of one conversation: who said what. */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include "base/err.h"
#include "cli/session.h"

typedef struct conversation_message {
    char *role, *content;
} conversation_message;

typedef struct conversation {
    conversation_message *items;
    size_t                count, cap;
    bool                  thinking;
} conversation;

void conversation_clear(conversation *c); /* empty; accepts a zeroed one */
int  conversation_add(conversation *c, const char *role, const char *content, err *e);
void conversation_drop_last(conversation *c);
/* The system message in front; NULL or "" removes it. */
int         conversation_set_system(conversation *c, const char *text, err *e);
const char *conversation_system(const conversation *c); /* NULL: none */

/* A JSON array of {"role", "content"}. Loading replaces the conversation, or leaves it alone when it fails. */
int conversation_save(const conversation *c, const char *path, err *e);
int conversation_load(conversation *c, const char *path, err *e);

/* Renders, generates, prints. */
int conversation_answer(const conversation *c, session *s, const volatile sig_atomic_t *interrupt,
                        session_result *result, err *e);

#endif
