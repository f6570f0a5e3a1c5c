/* SPDX-License-Identifier: Apache-2.0 */
/* complete [MODEL [PROMPT]]: one answer, printed while it is made. */
#include <hearth.h>
#include <stdio.h>
#include <string.h>

/* A prompt as the one message of a conversation. */
static int as_messages(char *out, size_t cap, const char *prompt) {
    size_t n = (size_t)snprintf(out, cap, "[{\"role\": \"user\", \"content\": \"");
    for (const unsigned char *p = (const unsigned char *)prompt; *p && n + 16 < cap; p++) {
        if (*p == '"' || *p == '\\') out[n++] = '\\';
        if (*p < 0x20)
            n += (size_t)snprintf(out + n, cap - n, "\\u%04x", *p);
        else
            out[n++] = (char)*p;
    }
    return n + 16 < cap ? snprintf(out + n, cap - n, "\"}]") : -1;
}

int main(int argc, char **argv) {
    char           messages[4096];
    hearth_error   e;
    hearth_request q;
    int            failed = 0;
    if (as_messages(messages, sizeof messages, argc > 2 ? argv[2] : "What is 12 plus 30?") < 0) {
        fprintf(stderr, "the prompt is too long for this example\n");
        return 1;
    }
    hearth_model *m = hearth_model_open(argc > 1 ? argv[1] : "demo", NULL, &e);
    if (!m) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    hearth_request_init(&q, sizeof q);
    q.messages = messages;
    q.temperature = 0;
    q.thinking = HEARTH_THINK_OFF;
    hearth_answer *a = hearth_submit(m, &q, &e);
    if (!a) {
        fprintf(stderr, "%s\n", e.text);
        hearth_model_free(m);
        return 1;
    }
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;) {
        if (ev->kind == HEARTH_CONTENT) {
            fwrite(ev->text, 1, ev->text_bytes, stdout);
            fflush(stdout);
        } else if (ev->kind == HEARTH_DONE) {
            printf("\n");
            fprintf(stderr, "%d tokens, %d tokens in %.2f s\n", ev->prompt_tokens, ev->generated_tokens,
                    ev->generate_seconds);
        } else if (ev->kind == HEARTH_FAILED) {
            fprintf(stderr, "%s\n", ev->text);
            failed = 1;
        }
    }
    hearth_answer_free(a);
    hearth_model_free(m);
    return failed;
}
