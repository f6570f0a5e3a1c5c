/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which answer an error gets; no other place knows. A code of base/err.h has a status and a name; a status has its
 * words in HTTP and in each protocol. A code's status is the same in all protocols, because clients of all of them
 * decide by it whether to try again. Ollama's errors are a sentence and need no words.
 */
#ifndef SERVER_ERROR_TABLE_H
#define SERVER_ERROR_TABLE_H

typedef struct error_kind {
    int         code; /* ERR_... */
    int         status;
    const char *name; /* "code" of OpenAI's errors and ours; "": none */
} error_kind;

typedef struct error_status {
    int         status;
    const char *text;      /* of the status line */
    const char *openai;    /* "type" */
    const char *responses; /* "code" of a response that failed */
    const char *anthropic; /* "type" */
    int         grpc;      /* grpc-status */
} error_status;

/* Never NULL: what is not in the table is the server's fault. */
const error_kind   *error_kind_of(int code);
const error_status *error_status_of(int status);

#endif
