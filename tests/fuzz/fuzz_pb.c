/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of Protocol Buffers: the first byte picks one of those that clients send or get. What was read of an answer
 * and written again is read as the same.
 */
#include "server/grpc/schema.h"
#include "server/http/json_in.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const pb_message *const asked[] = { &pb_chat_request,       &pb_complete_request,   &pb_embed_request,
                                           &pb_rerank_request,     &pb_tokenize_request,   &pb_detokenize_request,
                                           &pb_load_model_request, &pb_copy_model_request, &pb_health_request };
static const pb_message *const answers[] = { &pb_list_models_answer, &pb_model,           &pb_rerank_answer,
                                             &pb_tokenize_answer,    &pb_pull_progress,   &pb_model_status,
                                             &pb_count_answer,       &pb_health_response, &pb_render_answer };

static bool write_again(const pb_message *m, view bytes, str *out) {
    json_doc d = { NULL };
    err      e = { 0 };
    if (pb_read(m, bytes, &d.root, &e) < 0) {
        if (!e.msg[0]) abort();
        return false;
    }
    node root = node_root(&d);
    str  text;
    str_init(&text);
    node_write(&root, &text); /* it is JSON */
    str_deinit(&text);
    if (pb_write(m, d.root, out, &e) < 0) abort();
    json_doc_deinit(&d);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { ASKED = sizeof asked / sizeof asked[0], ANSWERS = sizeof answers / sizeof answers[0] };
    if (size < 1 || size > 1 << 16) return 0;
    char *copy = malloc(size);
    if (!copy) return 0;
    memcpy(copy, data + 1, size - 1);
    view   bytes = { copy, size - 1 };
    size_t which = data[0] % (ASKED + ANSWERS);
    if (which < ASKED) {
        json_doc d = { NULL };
        err      e = { 0 };
        if (pb_read(asked[which], bytes, &d.root, &e) < 0 && !e.msg[0]) abort();
        json_doc_deinit(&d);
    } else {
        str once, twice;
        str_init(&once);
        str_init(&twice);
        if (write_again(answers[which - ASKED], bytes, &once)) {
            if (!write_again(answers[which - ASKED], (view){ str_cstr(&once), once.len }, &twice)) abort();
            if (once.len != twice.len || (once.len && memcmp(once.data, twice.data, once.len) != 0)) abort();
        }
        str_deinit(&once);
        str_deinit(&twice);
    }
    free(copy);
    return 0;
}
