/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of one conversation: who said what, as the JSON that a request carries and a saved file holds. */
#ifndef CLI_RUN_CONVERSATION_H
#define CLI_RUN_CONVERSATION_H

#include "base/err.h"
#include "cli/run/session.h"

typedef struct conversation_message {
    char *role, *content; /* content: "" when it has none */
    char *json;           /* the whole message */
} conversation_message;

typedef struct conversation {
    conversation_message *items;
    size_t                count, cap;
    size_t                hidden; /* messages behind the system message that the model no longer gets; they are saved */
} conversation;

void conversation_clear(conversation *c); /* empty; accepts a zeroed one */
int  conversation_add(conversation *c, const char *role, const char *content, err *e);
/* A user's message with n pictures and sounds (runtime_request.blobs) before its text. */
int conversation_add_media(conversation *c, const char *content, const view *blobs, size_t n, err *e);
/* The model's answer, with its tool calls. */
int  conversation_add_answer(conversation *c, const session_result *r, err *e);
int  conversation_add_tool_result(conversation *c, const session_call *call, const char *text, err *e);
void conversation_shorten(conversation *c, size_t count); /* forgets what lies behind */
/* The system message in front; NULL or "" removes it. */
int         conversation_set_system(conversation *c, const char *text, err *e);
const char *conversation_system(const conversation *c); /* NULL: none */

/* A JSON array of messages. Loading replaces the conversation, or leaves it alone when it fails. */
int  conversation_save(const conversation *c, const char *path, err *e);
int  conversation_load(conversation *c, const char *path, err *e);
void conversation_json(const conversation *c, str *out); /* appends what the model gets */

/* Hides the oldest turn: a question with all that followed it. False: only the last one is left. */
bool conversation_drop_oldest(conversation *c);

#endif
