/* SPDX-License-Identifier: Apache-2.0 */
/* embed_many [MODEL] < lines: every line becomes a vector, all of them in one batch; then, for each line, the line that
 * is most like it. */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 1000, MAX_LINE = 2000 };

typedef struct item {
    char           text[MAX_LINE];
    hearth_answer *answer;
    float         *vector;
    int            n;
} item;

/* Keeps the vector of one answer; 0, or -1 when there is none. */
static int take_vector(item *it) {
    for (const hearth_event *ev; (ev = hearth_next(it->answer, -1)) != NULL;) {
        if (ev->kind == HEARTH_FAILED) fprintf(stderr, "%s: %s\n", it->text, ev->text);
        if (ev->kind != HEARTH_EMBEDDING) continue;
        it->vector = malloc((size_t)ev->n_vector * sizeof *it->vector);
        if (!it->vector) return -1;
        memcpy(it->vector, ev->vector, (size_t)ev->n_vector * sizeof *it->vector);
        it->n = ev->n_vector;
    }
    return it->vector ? 0 : -1;
}

/* Vectors have length 1: their product is the cosine. */
static double likeness(const item *a, const item *b) {
    double sum = 0;
    for (int i = 0; i < a->n; i++) sum += (double)a->vector[i] * (double)b->vector[i];
    return sum;
}

static void print_nearest(const item *items, int n, int i) {
    int    best = -1;
    double most = -2;
    for (int k = 0; k < n; k++) {
        double now = k == i ? -2 : likeness(&items[i], &items[k]);
        if (now > most) {
            most = now;
            best = k;
        }
    }
    if (best >= 0) printf("%s -> %s (%.3f)\n", items[i].text, items[best].text, most);
}

int main(int argc, char **argv) {
    hearth_error  e;
    int           n = 0, failed = 0;
    item         *items = calloc(MAX_LINES, sizeof *items);
    hearth_model *m = hearth_model_open(argc > 1 ? argv[1] : "demo", NULL, &e);
    if (!m || !items) {
        fprintf(stderr, "%s\n", m ? "memory is out" : e.text);
        free(items);
        hearth_model_free(m);
        return 1;
    }
    while (n < MAX_LINES && fgets(items[n].text, MAX_LINE, stdin)) {
        items[n].text[strcspn(items[n].text, "\n")] = '\0';
        if (items[n].text[0]) n++;
    }
    /* Submit all, then read: the model works on as many as fit into a step at once. */
    for (int i = 0; i < n && !failed; i++) {
        hearth_request q;
        hearth_request_init(&q, sizeof q);
        q.task = HEARTH_TASK_EMBED;
        q.text = items[i].text;
        while (!(items[i].answer = hearth_submit(m, &q, &e)) && e.code == HEARTH_ERR_BUSY) {
            /* The queue is full: wait for the oldest that is still open. */
            int k = 0;
            while (k < i && hearth_answer_over(items[k].answer)) k++;
            if (k == i || take_vector(&items[k]) < 0) break;
        }
        if (!items[i].answer) {
            fprintf(stderr, "%s\n", e.text);
            failed = 1;
        }
    }
    for (int i = 0; i < n && !failed; i++)
        if (!items[i].vector && take_vector(&items[i]) < 0) failed = 1;
    for (int i = 0; i < n && !failed; i++) print_nearest(items, n, i);
    for (int i = 0; i < n; i++) {
        hearth_answer_free(items[i].answer);
        free(items[i].vector);
    }
    free(items);
    hearth_model_free(m);
    return failed;
}
