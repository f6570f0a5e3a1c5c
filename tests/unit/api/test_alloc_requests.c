/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that fail while grammars are compiled, a request is answered, a model is written into the registry and an
 * HTTP request is read (support/alloc_fail.h). What SQLite and jansson allocate for themselves does not fail: jansson calls
 * some of its own failures mistakes in the text.
 */
#include "unit/support/alloc_fail.h"
#include "unit/support/runtime_support.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "bundle/tokenizer.h"
#include "grammar/grammar.h"
#include "registry/create.h"
#include "server/http/json_in.h"
#include "server/http/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAFT HEARTH_SOURCE_DIR "/models/demo/draft.gguf"

/* --- grammars --- */

static const char SCHEMA[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 8},"
    " \"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 150}, \"kind\": {\"enum\": [\"a\", \"bc\", 7]},"
    " \"when\": {\"type\": \"string\", \"format\": \"date\"}, \"more\": {\"type\": \"array\", \"items\": {\"$ref\": "
    "\"#\"},"
    " \"maxItems\": 3}, \"x\": {\"anyOf\": [{\"type\": \"null\"}, {\"type\": \"string\", \"pattern\": \"^[a-f]+$\"}]}},"
    " \"required\": [\"name\", \"age\"], \"additionalProperties\": false}";
static const char REGEX[] = "(foo|ba[rz]+){1,3}-\\d{2,5}[^x-z]?(\\w+ )*end";
static const char GBNF[] =
    "root ::= item (\",\" ws item)* \n item ::= \"[\" [0-9]+ \"]\" | \"(\" root \")\"\n ws ::= \" \"*\n";

typedef struct grammar_case {
    int (*make)(grammar **out, view text, err *e);
    const char    *text, *accepted; /* a beginning that the grammar allows */
    grammar_vocab *vocab;
} grammar_case;

/* Compiled, a mask at the beginning, a text, a mask behind it, a clone. */
static int use_grammar(void *ctx, char *result, err *e) {
    const grammar_case *c = ctx;
    grammar            *g = NULL;
    grammar_matcher    *m = NULL, *twin = NULL;
    uint32_t            mask[1 << 12];
    uint64_t            sum = 0;
    size_t              words = grammar_vocab_mask_words(c->vocab);
    assert_true(words <= sizeof mask / sizeof *mask);
    int rc = c->make(&g, view_of(c->text), e);
    if (rc == 0) rc = grammar_matcher_open(&m, g, c->vocab, e);
    if (rc == 0) rc = grammar_matcher_mask(m, mask, e);
    for (size_t i = 0; rc == 0 && i < words; i++) sum = sum * 31 + mask[i];
    if (rc == 0) rc = grammar_matcher_clone(&twin, m, e);
    /* A text that cannot be taken for want of memory must fail as such in the mask behind it. */
    bool taken = rc == 0 && grammar_matcher_accept_bytes(twin, c->accepted, strlen(c->accepted));
    if (rc == 0) rc = grammar_matcher_mask(twin, mask, e);
    if (rc == 0 && !taken) rc = err_set_nomem(e);
    for (size_t i = 0; rc == 0 && i < words; i++) sum = sum * 31 + mask[i];
    if (rc == 0)
        snprintf(result, ALLOC_RESULT_MAX, "%d %llx %d", taken, (unsigned long long)sum, grammar_matcher_may_end(twin));
    grammar_matcher_free(twin);
    grammar_matcher_free(m);
    grammar_unref(g);
    return rc;
}

static int open_vocab(void *t, char *result, err *e) {
    grammar_vocab *v = NULL;
    int            rc = grammar_vocab_open(&v, t, e);
    if (rc == 0) snprintf(result, ALLOC_RESULT_MAX, "%zu words", grammar_vocab_mask_words(v));
    grammar_vocab_free(v);
    return rc;
}

static void test_grammars(void **state) {
    grammar_case cases[] = {
        { grammar_from_schema, SCHEMA, "{\"name\": \"Al\", \"age\": 1", NULL },
        { grammar_from_schema_steered, SCHEMA, "{\"name\": \"Al\", \"age\": 1", NULL },
        { grammar_from_regex, REGEX, "foobarz-12", NULL },
        { grammar_from_gbnf, GBNF, "[12], (", NULL },
    };
    static const char *const names[] = { "schema", "steered schema", "regex", "gbnf" };
    tok                     *t;
    grammar_vocab           *v;
    err                      e;
    (void)state;
    if (bundle_tokenizer_open_path(&t, DRAFT, NULL, &e) < 0 || grammar_vocab_open(&v, t, &e) < 0) fail_msg("%s", e.msg);
    alloc_fail_each(&(alloc_case){ .name = "vocabulary of grammars", .run = open_vocab, .ctx = t });
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cases[i].vocab = v;
        alloc_fail_each(&(alloc_case){ .name = names[i], .run = use_grammar, .ctx = &cases[i] });
    }
    grammar_vocab_free(v);
    tok_free(t);
}

/* --- requests --- */

/* What a callback keeps without allocating. */
typedef struct heard {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  moved;
    bool            last;
    int             n_last;
    err             why;
    int             rc;
    char            text[2][ALLOC_RESULT_MAX / 2 - 2]; /* by choice */
} heard;

static void hear(void *ctx, const runtime_event *ev) {
    heard *h = ctx;
    char  *text = h->text[ev->choice == 1];
    size_t at = strlen(text), room = sizeof h->text[0] - at;
    if (ev->kind == RUNTIME_ERROR) {
        h->why = *ev->error;
        h->rc = ev->error->code;
    } else if (ev->kind == RUNTIME_TOOL_BEGIN) {
        snprintf(text + at, room, "call %.*s ", (int)ev->name.len, ev->name.data);
    } else if (ev->kind == RUNTIME_DONE) {
        snprintf(text + at, room, " [%d, %d tokens]", ev->finish, ev->usage.generated_tokens);
    } else if (ev->text.len) {
        snprintf(text + at, room, "%.*s", (int)ev->text.len, ev->text.data);
    }
    pthread_mutex_lock(&h->lock);
    h->last = h->last || ev->last;
    h->n_last += ev->last;
    pthread_cond_signal(&h->moved);
    pthread_mutex_unlock(&h->lock);
}

typedef struct asked {
    runtime        *m;
    runtime_request q;
    int             n;   /* tries */
    bool            own; /* a schema that no try before had: its grammar is compiled */
} asked;

static int ask(void *ctx, char *result, err *e) {
    asked          *a = ctx;
    runtime_stats   st;
    runtime_request q = a->q;
    heard           h = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };
    char            schema[1024];
    int             length = snprintf(schema, sizeof schema, "{\"title\": \"%07d\", %s", a->n++, SCHEMA + 1);
    if (a->own) q.constraint = (runtime_constraint){ RUNTIME_SCHEMA, { schema, (size_t)length } };
    q.on_event = hear;
    q.ctx = &h;
    int rc = runtime_submit(a->m, &q, &(uint64_t){ 0 }, e);
    if (rc < 0) return rc;
    pthread_mutex_lock(&h.lock);
    while (!h.last) pthread_cond_wait(&h.moved, &h.lock);
    pthread_mutex_unlock(&h.lock);
    /* The engine lets go of a request behind its last event. */
    do runtime_stat(a->m, &st);
    while (st.engine.running + st.engine.waiting + st.preparing > 0);
    assert_int_equal(h.n_last, 1);
    snprintf(result, ALLOC_RESULT_MAX, "%s|%s", h.text[0], h.text[1]);
    if (h.rc < 0) *e = h.why;
    return h.rc;
}

/* Without the cache every block is compared behind every try; with it, and with grammars that are kept, when the runtime is
 * gone. */
static void test_requests(void **state) {
    long            before = alloc_live();
    char           *path = test_fixture_path("tools/house.json"), *tools = NULL;
    view            stop[] = { view_of("never"), view_of("zzz") };
    runtime_options o = { .path = DRAFT, .engine = { .n_threads = 1, .n_ctx = 512 }, .grammar_bytes = 1 };
    asked           a = { 0 };
    err             e = { 0 };
    (void)state;
    if (file_read(&tools, &(size_t){ 0 }, path, 1 << 16, &e) < 0 || runtime_open(&a.m, &o, &e) < 0)
        fail_msg("%s", e.msg);
    test_greedy(&a.q, "[{\"role\": \"user\", \"content\": \"What is the weather in Paris?\"}]");
    a.q.max_tokens = 6;
    a.q.no_cache = true;
    a.q.stop = stop;
    a.q.n_stop = 2;
    a.q.want_logprob = true;
    a.q.n_top = 2;
    a.own = true;
    alloc_fail_each(&(alloc_case){ .name = "a chat under a schema", .run = ask, .ctx = &a, .keeps = true });
    a.own = false;
    a.q.max_tokens = 30;
    a.q.tools = view_of(tools);
    a.q.tool_choice = RUNTIME_TOOLS_REQUIRED;
    a.q.stream_calls = true;
    a.q.n_choices = 2;
    alloc_fail_each(&(alloc_case){ .name = "a chat with tools", .run = ask, .ctx = &a, .keeps = true });
    runtime_free(a.m);
    o.grammar_bytes = 0;
    if (runtime_open(&a.m, &o, &e) < 0) fail_msg("%s", e.msg);
    a.q.no_cache = false;
    alloc_fail_each(&(alloc_case){ .name = "a chat with the cache", .run = ask, .ctx = &a, .grows = true });
    runtime_free(a.m);
    free(tools);
    free(path);
    assert_int_equal(alloc_live(), before);
}

/* --- the registry --- */

static int write_model(void *dir, char *result, err *e) {
    static const char text[] =
        "FROM base\nPARAMETER temperature 0.5\nPARAMETER stop \"<|end|>\"\nSYSTEM \"\"\"Be\nbrief\"\"\"\n"
        "MESSAGE user Hello\nMESSAGE assistant Hi\nADAPTER /adapters/x.gguf\nLICENSE none\n";
    registry      *r = NULL;
    registry_model m = { 0 }, found = { 0 }, *list = NULL;
    registry_model base = { .name = "base", .path = (char *)DRAFT, .family = "llama", .n_ctx = 64 };
    modelfile      f;
    char          *settings = NULL, path[512];
    size_t         n = 0;
    snprintf(path, sizeof path, "%s/registry.db", (const char *)dir);
    modelfile_init(&f);
    int rc = modelfile_parse(&f, text, sizeof text - 1, "Modelfile", e);
    if (rc == 0) rc = registry_open(&r, path, e);
    if (rc == 0) rc = registry_add(r, &base, true, e);
    if (rc == 0)
        rc = registry_create(r, &(create_request){ .name = "made", .base = "base", .modelfile = &f, .replace = true },
                             &m, e);
    if (rc == 0) rc = registry_copy(r, "made", "copied", true, e);
    if (rc == 0) rc = registry_find(r, "copied", &found, e);
    if (rc == 0) rc = registry_settings(r, "copied", &settings, e);
    if (rc == 0) rc = registry_list(r, &list, &n, e);
    if (rc == 0) rc = registry_remove(r, "copied", e);
    if (rc == 0)
        snprintf(result, ALLOC_RESULT_MAX, "%s %s %s %s %s", m.name, found.name, found.family, found.path,
                 settings ? settings : "-");
    for (size_t i = 0; i < n; i++) registry_model_deinit(&list[i]);
    free(list);
    free(settings);
    registry_model_deinit(&found);
    registry_model_deinit(&m);
    modelfile_deinit(&f);
    registry_close(r);
    return rc;
}

static void test_registry(void **state) {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1); /* every write is synced */
    char *dir = test_temp_dir();
    (void)state;
    alloc_fail_each(&(alloc_case){ .name = "a registry write", .run = write_model, .ctx = dir });
    test_temp_dir_remove(dir);
}

/* --- HTTP and JSON --- */

static const char HTTP[] =
    "POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Transfer-Encoding: chunked\r\n\r\n"
    "4b\r\n{\"model\": \"demo\", \"temperature\": 0.5, \"messages\": [{\"role\": \"user\", \"conten\r\n"
    "1c\r\nt\": \"a \\u00e4 b\", \"n\": [1, 2\r\n"
    "8\r\n, 3.5]}]\r\n"
    "10\r\n, \"stream\": true\r\n"
    "1\r\n}\r\n"
    "0\r\n\r\n";

static int read_http(void *ctx, char *result, err *e) {
    http_parser   p;
    http_request *q = NULL;
    json_doc      d = { 0 };
    str           again;
    size_t        used, at = 0;
    int           rc = 0;
    (void)ctx;
    str_init(&again);
    http_parser_init(&p, (http_limits){ 65536, 65536, NULL });
    while (rc == 0 && !q) {
        http_event ev = http_parser_feed(&p, HTTP + at, sizeof HTTP - 1 - at, &used);
        at += used;
        if (ev == HTTP_COMPLETE)
            q = http_parser_take(&p);
        else if (ev == HTTP_ERROR)
            rc = err_set(e, p.status == 503 || p.status == 500 ? ERR_NOMEM : ERR_FORMAT, "%d: %s", p.status, p.reason);
        else
            assert_true(at < sizeof HTTP - 1);
    }
    if (rc == 0) rc = json_doc_parse(&d, q->body.data, q->body.len, e);
    if (rc == 0) {
        node   root = node_root(&d), messages;
        reader in;
        view   model = { 0 };
        bool   stream = false;
        reader_init(&in);
        need_string(&in, &root, "model", &model);
        need_array(&in, &root, "messages", 10, &messages);
        read_bool(&in, &root, "stream", &stream);
        node_write(&messages, &again);
        if (!str_ok(&again)) rc = err_set_nomem(e);
        snprintf(result, ALLOC_RESULT_MAX, "%.*s %.*s %d %s", (int)q->path.len, q->path.data, (int)model.len,
                 model.data, stream, str_cstr(&again));
    }
    json_doc_deinit(&d);
    http_request_free(q);
    http_parser_deinit(&p);
    str_deinit(&again);
    return rc;
}

static void test_http(void **state) {
    (void)state;
    alloc_fail_each(&(alloc_case){ .name = "an HTTP request with JSON", .run = read_http });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_http),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
