/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk tier under an engine: damaged, foreign and missing files, a full disk, two processes, budgets, page types.
 * Whatever happens to the files, the answers stay what they are without a cache.
 */
#include "nn/kv_type.h"
#include "unit/support/engine_support.h"
#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/xxh64.h"
#include "kernels/cpu.h"
#include "nn/plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROMPT = 111, REPLY = 6, PAGE = 32, CONTEXT = 256, MAX_FILES = 64 };

/* -- log lines */

static struct {
    pthread_mutex_t lock;
    int             lines;
    char            last[512];
} heard = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void listen(void *ctx, const log_record *r) {
    (void)ctx;
    pthread_mutex_lock(&heard.lock);
    heard.lines++;
    snprintf(heard.last, sizeof heard.last, "%s", r->message);
    pthread_mutex_unlock(&heard.lock);
}

/* -- asking */

static void prompt_of(const fixture *f, int number, int32_t *tokens) {
    uint64_t seed = 5;
    for (int i = 0; i < PROMPT; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)f->model->dims->n_vocab);
    if (number) tokens[0] = number; /* nothing in common with another one */
}

static answer ask(engine *g, const int32_t *tokens, int n) {
    answer         a = { 0 };
    engine_request r = { .tokens = tokens,
                         .n_tokens = (size_t)n,
                         .max_tokens = REPLY,
                         .want_logprob = true,
                         .on_event = answer_collect,
                         .ctx = &a };
    sampling_params_default(&r.sampling);
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    return a;
}

static engine_options options(const char *dir) {
    return (engine_options){ .n_threads = 1, .n_ctx = CONTEXT, .max_seqs = 1, .disk_cache_dir = dir };
}

/* Opens an engine, asks one prompt, closes it. */
static answer ask_once(const fixture *f, const char *dir, int number) {
    int32_t tokens[PROMPT];
    prompt_of(f, number, tokens);
    engine *g = fixture_engine(f, options(dir));
    answer  a = ask(g, tokens, PROMPT);
    engine_free(g);
    assert_true(a.over && !a.failed && a.n == REPLY);
    return a;
}

/* -- files */

typedef struct entry_file {
    char   name[256];
    char  *data;
    size_t bytes;
} entry_file;

typedef struct file_list {
    entry_file files[MAX_FILES];
    int        n;
} file_list;

static unsigned number_at(const entry_file *f, size_t offset) { /* of a header, see kv/entry.h */
    const uint8_t *p = (const uint8_t *)f->data + offset;
    return (unsigned)p[0] | (unsigned)p[1] << 8 | (unsigned)p[2] << 16 | (unsigned)p[3] << 24;
}

static void list_read(file_list *l, const char *dir) {
    DIR *d = opendir(dir);
    assert_non_null(d);
    l->n = 0;
    for (const struct dirent *x; (x = readdir(d));) {
        if (x->d_name[0] == '.') continue;
        entry_file *f = &l->files[l->n++];
        assert_true(l->n < MAX_FILES);
        snprintf(f->name, sizeof f->name, "%s", x->d_name);
        char *path = path_join(dir, f->name);
        assert_int_equal(file_read(&f->data, &f->bytes, path, 1 << 24, NULL), 0);
        free(path);
    }
    closedir(d);
}

static void list_free(file_list *l) {
    for (int i = 0; i < l->n; i++) free(l->files[i].data);
    l->n = 0;
}

static void write_in(const char *dir, const char *name, const void *data, size_t bytes) {
    char *path = path_join(dir, name);
    test_write_file(path, data, bytes);
    free(path);
}

static void remove_in(const char *dir, const char *name) {
    char *path = path_join(dir, name);
    (void)unlink(path);
    free(path);
}

/* The directory holds exactly these files. */
static void list_restore(const file_list *l, const char *dir) {
    static file_list now;
    list_read(&now, dir);
    for (int i = 0; i < now.n; i++) remove_in(dir, now.files[i].name);
    list_free(&now);
    for (int i = 0; i < l->n; i++) write_in(dir, l->files[i].name, l->files[i].data, l->files[i].bytes);
}

static const entry_file *page_at(const file_list *l, unsigned position) {
    for (int i = 0; i < l->n; i++) {
        if (number_at(&l->files[i], 12) == 1 && number_at(&l->files[i], 24) == position) return &l->files[i];
    }
    fail_msg("no page at %u", position);
    return NULL;
}

/* -- damage */

static fixture   llama;
static answer    plain; /* prompt 0 without a cache */
static file_list pristine;

/* The second page's file is what is given: one log line, one page used, the same answer. */
static void check_damaged(const char *dir, const char *name, const void *data, size_t bytes, const char *what) {
    list_restore(&pristine, dir);
    write_in(dir, name, data, bytes);
    heard.lines = 0;
    answer a = ask_once(&llama, dir, 0);
    if (!answer_same(&a, &plain)) fail_msg("%s: another answer", what);
    if (a.cached != PAGE) fail_msg("%s: %d tokens from the cache", what, a.cached);
    if (heard.lines != 1) fail_msg("%s: %d log lines", what, heard.lines);
}

static void test_damage(void **state) {
    char *dir = test_temp_dir(), what[64];
    (void)state;
    answer a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && a.cached == 0);
    a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && a.cached == PROMPT - 1);
    assert_int_equal(heard.lines, 0);
    list_read(&pristine, dir);
    assert_int_equal(pristine.n, (PROMPT + REPLY - 1 + PAGE - 1) / PAGE);
    const entry_file *victim = page_at(&pristine, PAGE);
    const size_t      head = 176 + 4 * PAGE, n = victim->bytes;
    char             *copy = malloc(n + 1);

    const size_t cuts[] = { 0, 1, 7, 8, 12, 167, 168, 200, head - 1, head, head + 1, n / 2, n - 64, n - 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        snprintf(what, sizeof what, "cut at %zu", cuts[i]);
        check_damaged(dir, victim->name, victim->data, cuts[i], what);
    }
    memcpy(copy, victim->data, n);
    copy[n] = 0;
    check_damaged(dir, victim->name, copy, n + 1, "one byte more");
    for (size_t at = 0; at < n; at += at < head ? 23 : n / 12) {
        snprintf(what, sizeof what, "byte %zu", at);
        copy[at] ^= 0x10;
        check_damaged(dir, victim->name, copy, n, what);
        copy[at] ^= 0x10;
    }
    copy[8] = 3;
    check_damaged(dir, victim->name, copy, n, "another version");
    assert_non_null(strstr(heard.last, "version 3"));
    /* Another page's bytes, intact, under this name. */
    const entry_file *other = page_at(&pristine, 2 * PAGE);
    check_damaged(dir, victim->name, other->data, other->bytes, "another page");
    free(copy);

    /* The damaged file went with its log line: the next start is silent. */
    list_restore(&pristine, dir);
    write_in(dir, victim->name, "x", 1);
    heard.lines = 0;
    a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && heard.lines == 1);
    a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && heard.lines == 1 && a.cached == PROMPT - 1);

    /* A missing file is nobody's fault. */
    remove_in(dir, victim->name);
    heard.lines = 0;
    a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && heard.lines == 0 && a.cached == PAGE);

    /* Files that are none of ours stay alone. */
    write_in(dir, "notes.txt", "hello", 5);
    a = ask_once(&llama, dir, 0);
    assert_true(heard.lines == 0);
    char *path = path_join(dir, "notes.txt");
    assert_true(file_exists(path));
    free(path);
    list_free(&pristine);
    test_temp_dir_remove(dir);
}

/* Two models and two page types in one directory do not see each other; an entry under a wrong name is refused. */
static void test_foreign(void **state) {
    char            *dir = test_temp_dir();
    fixture          f;
    static file_list ours, both;
    (void)state;
    heard.lines = 0;
    (void)ask_once(&llama, dir, 0);
    list_read(&ours, dir);
    fixture_open(&f, "smollm3");
    answer alone = ask_once(&f, NULL, 0), beside = ask_once(&f, dir, 0), again = ask_once(&f, dir, 0);
    assert_true(answer_same(&alone, &beside) && beside.cached == 0);
    assert_true(answer_same(&alone, &again) && again.cached == PROMPT - 1);
    answer a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && a.cached == PROMPT - 1);
    assert_int_equal(heard.lines, 0);
    /* The other model's first page, named like one of ours. */
    list_read(&both, dir);
    const entry_file *first = page_at(&ours, 0), *theirs = NULL;
    for (int i = 0; i < both.n; i++) {
        if (memcmp(both.files[i].name, first->name, 16) != 0 && number_at(&both.files[i], 24) == 0)
            theirs = &both.files[i];
    }
    assert_non_null(theirs);
    write_in(dir, first->name, theirs->data, theirs->bytes);
    a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && a.cached == 0);
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.last, "another model"));
    list_free(&ours);
    list_free(&both);
    fixture_close(&f);
    test_temp_dir_remove(dir);
}

static int count_files(const char *dir, uint64_t *bytes) {
    int  n = 0;
    DIR *d = opendir(dir);
    *bytes = 0;
    for (const struct dirent *x; (x = readdir(d));) {
        struct stat st;
        if (x->d_name[0] == '.' || fstatat(dirfd(d), x->d_name, &st, 0) < 0) continue;
        n++;
        *bytes += ((uint64_t)st.st_size + 4095) / 4096 * 4096;
    }
    closedir(d);
    return n;
}

/* -- version 1 */

static void hash_into(uint8_t out[16], const void *first, size_t first_bytes, const void *rest, size_t rest_bytes) {
    sha256  s;
    uint8_t digest[SHA256_BYTES];
    sha256_init(&s);
    sha256_feed(&s, first, first_bytes);
    sha256_feed(&s, rest, rest_bytes);
    sha256_finish(&s, digest);
    memcpy(out, digest, 16);
}

static int hex_of(char *to, const uint8_t *from, int bytes) {
    for (int i = 0; i < bytes; i++) snprintf(to + 2 * i, 3, "%02x", from[i]);
    return 2 * bytes;
}

/* What version 1 would have written in place of a first page: no namespace, no content keys, and a root's key over the
 * magic and a header without magic and version. The caller frees the bytes. */
static entry_file as_version_1(const entry_file *f) {
    const uint8_t *from = (const uint8_t *)f->data;
    size_t         tokens = 4 * (size_t)number_at(f, 20), payload = f->bytes - 176 - tokens;
    entry_file     out = { .bytes = 160 + tokens + payload };
    uint8_t       *to = calloc(1, out.bytes), root[152] = { 0 }, head[8];
    assert_int_equal(number_at(f, 24), 0);
    memcpy(root + 16, from + 16, 104 - 16);
    memset(root + 20, 0, 12);
    memcpy(to, from, 104);
    to[8] = 1;
    hash_into(to + 104, to, 8, root, sizeof root);
    memcpy(to + 152, from + 168, tokens);
    memcpy(head, to + 12, 4);
    memcpy(head + 4, to + 20, 4);
    uint8_t *chained = malloc(8 + tokens);
    memcpy(chained, head, 8);
    memcpy(chained + 8, to + 152, tokens);
    hash_into(to + 120, to + 104, 16, chained, 8 + tokens);
    free(chained);
    memcpy(to + 136, from + 152, 16);
    uint64_t sum = xxh64(to, 152 + tokens);
    for (int i = 0; i < 8; i++) to[152 + tokens + (size_t)i] = (uint8_t)(sum >> (8 * i));
    memcpy(to + 160 + tokens, from + 176 + tokens, payload);
    int n = hex_of(out.name, to + 104, 8);
    out.name[n++] = '-';
    n += hex_of(out.name + n, to + 120, 16);
    memcpy(out.name + n, ".hkv", 5);
    out.data = (char *)to;
    return out;
}

static entry_file fixture_file(const char *name) {
    entry_file f = { 0 };
    char      *path = test_fixture_path(name);
    assert_int_equal(file_read(&f.data, &f.bytes, path, 1 << 20, NULL), 0);
    free(path);
    return f;
}

/* Files of version 1 are not read and not complained about; they go when their room is needed. */
static void test_version_1(void **state) {
    char      *dir = test_temp_dir();
    entry_file page = fixture_file("kv/first.hkv"), want = fixture_file("kv/version1.hkv"), got = as_version_1(&page);
    (void)state;
    assert_int_equal(got.bytes, want.bytes); /* so this is what version 1 wrote */
    assert_memory_equal(got.data, want.data, got.bytes);
    free(page.data);
    free(want.data);
    free(got.data);
    heard.lines = 0;
    (void)ask_once(&llama, dir, 0);
    list_read(&pristine, dir);
    entry_file old = as_version_1(page_at(&pristine, 0));
    for (int i = 0; i < pristine.n; i++) remove_in(dir, pristine.files[i].name);
    write_in(dir, old.name, old.data, old.bytes);
    char *path = path_join(dir, old.name);
    for (int round = 0; round < 2; round++) {
        answer a = ask_once(&llama, dir, 0);
        assert_true(answer_same(&a, &plain));
        assert_int_equal(a.cached, round ? PROMPT - 1 : 0);
        assert_true(file_exists(path));
    }
    /* Older than everything: it is the first to go. */
    const struct timespec past[2] = { { 1000, 0 }, { 1000, 0 } };
    assert_int_equal(utimensat(AT_FDCWD, path, past, 0), 0);
    engine_options o = options(dir);
    uint64_t       bytes;
    (void)count_files(dir, &bytes);
    o.disk_cache_bytes = bytes - 4096;
    engine_free(fixture_engine(&llama, o));
    assert_false(file_exists(path));
    assert_int_equal(ask_once(&llama, dir, 0).cached, PROMPT - 1);
    assert_int_equal(heard.lines, 0);
    /* Under a name of ours it is told by its version. */
    write_in(dir, page_at(&pristine, 0)->name, old.data, old.bytes);
    answer a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && a.cached == 0);
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.last, "version 1"));
    free(path);
    free(old.data);
    list_free(&pristine);
    test_temp_dir_remove(dir);
}

/* -- the disk's limits */

/* No file may grow beyond a block: every write fails. In a process of its own, as the limit cannot be taken back. */
static void test_full_disk(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = { 4096, 4096 };
        int           wrong = 0;
        int32_t       tokens[PROMPT];
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) < 0) _exit(100);
        heard.lines = 0;
        engine *g = fixture_engine(&llama, options(dir));
        for (int i = 0; i < 4; i++) {
            prompt_of(&llama, i % 2, tokens);
            answer a = ask(g, tokens, PROMPT);
            if (i % 2 == 0 && !answer_same(&a, &plain)) wrong |= 1;
            if (i >= 2 && a.cached != PROMPT - 1) wrong |= 2;
        }
        engine_free(g);
        if (heard.lines != 1) wrong |= 4;
        if (!strstr(heard.last, "disk cache misses entries")) wrong |= 8;
        uint64_t bytes;
        if (count_files(dir, &bytes) != 0) wrong |= 16;
        _exit(wrong);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    test_temp_dir_remove(dir);
}

static void test_budget(void **state) {
    char    *dir = test_temp_dir();
    int32_t  tokens[PROMPT];
    uint64_t bytes, budget = 12 * 16384;
    (void)state;
    heard.lines = 0;
    engine_options o = options(dir);
    o.disk_cache_bytes = budget;
    engine *g = fixture_engine(&llama, o);
    for (int i = 1; i <= 12; i++) {
        prompt_of(&llama, i, tokens);
        (void)ask(g, tokens, PROMPT);
        engine_stats st;
        engine_stat(g, &st);
        assert_true(st.disk_bytes <= budget);
    }
    engine_free(g);
    assert_true(count_files(dir, &bytes) > 4);
    assert_true(bytes <= budget);
    /* The newest are there, the oldest are not; another model's entries make room before newer ones of ours. */
    assert_int_equal(ask_once(&llama, dir, 12).cached, PROMPT - 1);
    assert_int_equal(ask_once(&llama, dir, 11).cached, PROMPT - 1);
    assert_int_equal(ask_once(&llama, dir, 1).cached, 0);
    fixture f;
    fixture_open(&f, "smollm3");
    o = options(dir);
    o.disk_cache_bytes = budget;
    g = fixture_engine(&f, o);
    for (int i = 1; i <= 3; i++) {
        prompt_of(&f, i, tokens);
        (void)ask(g, tokens, PROMPT);
    }
    engine_free(g);
    (void)count_files(dir, &bytes);
    assert_true(bytes <= budget);
    assert_int_equal(ask_once(&f, dir, 3).cached, PROMPT - 1);
    fixture_close(&f);
    /* A smaller budget holds from the start. */
    o.disk_cache_bytes = budget / 3;
    engine_free(fixture_engine(&llama, o));
    (void)count_files(dir, &bytes);
    assert_true(bytes > 0 && bytes <= budget / 3);
    /* What a process left half-written when it died goes after a while, and not before. */
    char                 *old = path_join(dir, "0123456789abcdef-0123456789abcdef0123456789abcdef.hkv.aaaaaa");
    char                 *fresh = path_join(dir, "0123456789abcdef-0123456789abcdef0123456789abcdef.hkv.bbbbbb");
    const struct timespec past[2] = { { 1000, 0 }, { 1000, 0 } };
    test_write_file(old, "x", 1);
    test_write_file(fresh, "x", 1);
    assert_int_equal(utimensat(AT_FDCWD, old, past, 0), 0);
    (void)ask_once(&llama, dir, 0);
    assert_false(file_exists(old));
    assert_true(file_exists(fresh));
    free(old);
    free(fresh);
    assert_int_equal(heard.lines, 0);
    test_temp_dir_remove(dir);
}

static void test_bad_directory(void **state) {
    engine        *g;
    err            e;
    engine_options o = options("/dev/null/cache");
    (void)state;
    o.k_type = o.v_type = NN_KV_F16;
    assert_int_equal(engine_open(&g, llama.model, NULL, &o, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "/dev/null/cache"));
}

/* A process that is killed loses what it had not written yet; what it had written is there for the next one. */
static void test_killed(void **state) {
    char *dir = test_temp_dir();
    int   status;
    (void)state;
    heard.lines = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int32_t  tokens[PROMPT];
        uint64_t bytes;
        prompt_of(&llama, 0, tokens);
        engine *g = fixture_engine(&llama, options(dir));
        (void)ask(g, tokens, PROMPT);
        while (count_files(dir, &bytes) < (PROMPT + REPLY - 1 + PAGE - 1) / PAGE) sched_yield();
        (void)kill(getpid(), SIGKILL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    answer a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain));
    assert_true(a.cached >= 2 * PAGE); /* the last file may have been a temporary one */
    assert_int_equal(heard.lines, 0);
    test_temp_dir_remove(dir);
}

/* Two processes write the same and different entries into one directory, and both delete what they think is old. */
static void test_two_processes(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    heard.lines = 0;
    for (int round = 0; round < 2; round++) {
        pid_t          child = fork();
        engine_options o = options(dir);
        if (round == 0) o.disk_cache_bytes = 16 * 16384;
        assert_true(child >= 0);
        engine *g = fixture_engine(&llama, o);
        int     wrong = 0;
        for (int i = 0; i < 12; i++) {
            int32_t tokens[PROMPT];
            prompt_of(&llama, i % 3 == 0 ? 0 : i + (child ? 100 : 200), tokens);
            answer a = ask(g, tokens, PROMPT);
            if (i % 3 == 0 && !answer_same(&a, &plain)) wrong = 1;
        }
        engine_free(g);
        if (child == 0) _exit(wrong || heard.lines ? 1 : 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(wrong, 0);
    }
    assert_int_equal(heard.lines, 0);
    /* The second round had room for everything: all of it is there. */
    assert_int_equal(ask_once(&llama, dir, 111).cached, PROMPT - 1);
    assert_int_equal(ask_once(&llama, dir, 211).cached, PROMPT - 1);
    answer a = ask_once(&llama, dir, 0);
    assert_true(answer_same(&a, &plain) && a.cached == PROMPT - 1);
    assert_int_equal(heard.lines, 0);
    test_temp_dir_remove(dir);
}

/* -- page types */

static engine *typed_engine(const fixture *f, engine_options o, int type) {
    engine *g;
    err     e;
    o.k_type = o.v_type = type;
    o.cpu = cpu_detect();
    if (engine_open(&g, f->model, NULL, &o, &e) < 0) fail_msg("%s", e.msg);
    return g;
}

static size_t state_bytes(const fixture *f) {
    size_t floats = 0;
    for (int i = 0; i < f->model->dims->n_layer; i++) floats += nn_state_fixed_floats(&f->model->state[i]);
    return floats * sizeof(float);
}

/* Every page type through host memory and the disk: three prompts in turns through an arena for one. */
static void test_types(void **state) {
    static const char *const names[] = { "llama", "qwen3_next", "mamba2" };
    static const int         types[] = { NN_KV_F32, NN_KV_F16, NN_KV_BF16, NN_KV_Q8_0, NN_KV_Q4_0 };
    (void)state;
    heard.lines = 0;
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        fixture f;
        char   *dir = test_temp_dir();
        fixture_open(&f, names[m]);
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            int32_t        tokens[3][PROMPT];
            answer         want[3];
            engine_stats   st;
            engine_options o = { .n_threads = 1, .n_ctx = CONTEXT, .max_seqs = 1, .no_prefix_cache = true };
            engine        *g = typed_engine(&f, o, types[k]);
            for (int i = 0; i < 3; i++) {
                prompt_of(&f, i, tokens[i]);
                want[i] = ask(g, tokens[i], PROMPT);
            }
            engine_stat(g, &st);
            engine_free(g);
            o = options(NULL);
            o.host_cache_bytes = 16 << 20;
            o.cache_bytes = fixture_page_bytes(&f, PAGE) * (types[k] == NN_KV_F32 ? 2 : 1) * 5;
            o.cache_bytes += 2 * state_bytes(&f);
            for (int way = 0; way < 3; way++) { /* host; disk; disk after a restart */
                if (way == 1) {
                    o.host_cache_bytes = 0;
                    o.disk_cache_dir = dir;
                }
                g = typed_engine(&f, o, types[k]);
                for (int i = 0; i < 9; i++) {
                    answer a = ask(g, tokens[i % 3], PROMPT);
                    if (!answer_same(&a, &want[i % 3]))
                        fail_msg("%s: type %d, way %d: request %d differs", names[m], types[k], way, i);
                    if (a.cached != (i < 3 && way < 2 ? 0 : PROMPT - 1))
                        fail_msg("%s: type %d, way %d: request %d: %d cached", names[m], types[k], way, i, a.cached);
                }
                engine_stat(g, &st);
                if (types[k] != NN_KV_Q8_0 && types[k] != NN_KV_Q4_0)
                    assert_true(way ? st.from_disk > 0 : st.from_host > 0);
                engine_free(g);
            }
        }
        fixture_close(&f);
        test_temp_dir_remove(dir);
    }
    assert_int_equal(heard.lines, 0);
}

static int setup(void **state) {
    (void)state;
    log_set_sink(listen, NULL, LOG_WARN);
    fixture_open(&llama, "llama");
    plain = ask_once(&llama, NULL, 0);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    fixture_close(&llama);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),    cmocka_unit_test(test_foreign),       cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_full_disk), cmocka_unit_test(test_budget),        cmocka_unit_test(test_bad_directory),
        cmocka_unit_test(test_killed),    cmocka_unit_test(test_two_processes), cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
