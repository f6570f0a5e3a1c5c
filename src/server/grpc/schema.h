/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages, services and methods of gRPC that the server has, as tables. proto/ says the same for clients; a test
 * compares the two. Reflection answers from here.
 */
#ifndef SERVER_GRPC_SCHEMA_H
#define SERVER_GRPC_SCHEMA_H

#include "server/exchange.h"
#include "server/grpc/pb.h"

/* Numbers of fields that are put one by one (infer.c). */
enum {
    EVENT_CHOICE = 1,
    EVENT_STARTED,
    EVENT_PROGRESS,
    EVENT_TOKEN,
    EVENT_CONTENT,
    EVENT_REASONING,
    EVENT_TOOL_BEGIN,
    EVENT_TOOL_ARGUMENTS,
    EVENT_TOOL_END,
    EVENT_DONE
};
enum { STARTED_ID = 1, STARTED_MODEL, STARTED_PROMPT_TOKENS };
enum { PROGRESS_DONE = 1, PROGRESS_TOTAL, PROGRESS_CACHED };
enum { CALL_INDEX = 1, CALL_ID, CALL_NAME, CALL_TEXT = 2 };
enum { DONE_FINISH = 1, DONE_USAGE };
enum { TOKEN_ID = 1, TOKEN_TEXT, TOKEN_LOGPROB, TOKEN_TOP, TOKEN_OF_PROMPT };
enum {
    USAGE_PROMPT = 1,
    USAGE_CACHED,
    USAGE_GENERATED,
    USAGE_REASONING,
    USAGE_DRAFTED,
    USAGE_ACCEPTED,
    USAGE_QUEUED_S,
    USAGE_PROMPT_S,
    USAGE_GENERATE_S
};
enum { ANSWER_ID = 1, ANSWER_MODEL, ANSWER_CHOICES, ANSWER_USAGE };
enum { CHOICE_INDEX = 1, CHOICE_CONTENT, CHOICE_REASONING, CHOICE_TOOL_CALLS, CHOICE_FINISH, CHOICE_TOKENS };
enum { TOOL_CALL_ID = 1, TOOL_CALL_NAME, TOOL_CALL_ARGUMENTS };
enum { VECTOR_INDEX = 1, VECTOR_VALUES, VECTOR_PROMPT_TOKENS };
enum { FINISH_STOP = 1, FINISH_LENGTH, FINISH_TOOL_CALLS };
enum { PULL_STATUS = 1, PULL_DIGEST, PULL_TOTAL, PULL_COMPLETED };
enum { SERVING_UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN };

typedef struct grpc_method {
    const char       *name; /* "Chat" */
    const pb_message *in, *out;
    bool              client_streams, server_streams;
    route             route;
} grpc_method;

typedef struct grpc_service {
    const char        *name; /* "hearth.v1.Inference" */
    const grpc_method *methods;
    size_t             n_methods;
} grpc_service;

/* A file of proto/, or one that everybody knows. */
typedef struct grpc_file {
    const char                *path, *package;
    const char *const         *imports;     /* ends with NULL */
    const pb_message *const   *messages;    /* ends with NULL */
    const pb_enum             *enumeration; /* NULL: none */
    const grpc_service *const *services;    /* ends with NULL */
} grpc_file;

extern const grpc_file *const grpc_files[]; /* ends with NULL */

/* messages.c */
extern const pb_message pb_chat_request, pb_complete_request, pb_embed_request, pb_rerank_request, pb_answer, pb_event,
    pb_vector, pb_rerank_answer, pb_tokenize_request, pb_tokenize_answer, pb_detokenize_request, pb_detokenize_answer,
    pb_render_answer, pb_count_answer, pb_list_models_request, pb_list_models_answer, pb_get_model_request, pb_model,
    pb_load_model_request, pb_unload_model_request, pb_model_status, pb_pull_model_request, pb_pull_progress,
    pb_copy_model_request, pb_copy_model_answer, pb_delete_model_request, pb_delete_model_answer, pb_health_request,
    pb_health_response;
extern const pb_message *const pb_inference_messages[], *const pb_text_messages[], *const pb_models_messages[],
                                                                                       *const pb_health_messages[];
extern const pb_enum                                                                          pb_finish;

#endif
