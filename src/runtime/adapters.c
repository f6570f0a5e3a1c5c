/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/adapters.h"

#include "backend/backend.h"
#include "base/file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { WAIT_MS = 200 };

/* What the system says of a file; a directory: of the two files in it. */
typedef struct file_id {
    struct {
        uint64_t device, inode, bytes;
        int64_t  seconds, nanoseconds;
    } at[2];
} file_id;

typedef struct kept_adapter {
    char                *path;
    file_id              id;
    nn_adapter          *adapter;
    int                  sets; /* that use it */
    uint64_t             used_at;
    struct kept_adapter *next;
} kept_adapter;

struct adapters_set {
    nn_adapter_set *set;
    kept_adapter   *of[NN_SET_MOST];
    float           scales[NN_SET_MOST];
    int             n, users;
    size_t          bytes;
    uint64_t        used_at;
    adapters_set   *next;
};

struct adapters {
    const nn_model *model;
    lowrank_type    type; /* of factors */
    size_t          limit;
    pthread_mutex_t lock;     /* guards all below; files are read under it, by the one thread that takes sets */
    pthread_cond_t  returned; /* a set was given back */
    kept_adapter   *kept;
    adapters_set   *sets;
    size_t          bytes, said; /* said: what on_adapters was told last */
    uint64_t        clock;
    void (*on_change)(void *ctx, uint64_t bytes);
    void *ctx;
};

static int choose_type(const runtime_options *o, lowrank_type *out, err *e) {
    const char       *said = o->settings.adapter_type;
    const nn_backend *backend;
    nn_device         d;
    *out = LOWRANK_AUTO;
    if (said && !lowrank_type_parse(said, out))
        return err_set(e, ERR_ARG, "adapter_type: '%.40s' is not a type of adapters", said);
    if (backend_find(o->engine.device, &backend, &d, NULL) < 0 ||
        (d.kind != NN_DEVICE_GPU && d.kind != NN_DEVICE_MIXED))
        return 0;
    if (*out != LOWRANK_AUTO && *out != LOWRANK_F16)
        return err_set(e, ERR_UNSUPPORTED, "adapter_type: %s keeps adapters as f16 only", d.id);
    *out = LOWRANK_F16;
    return 0;
}

int adapters_open(adapters **out, const nn_model *m, const runtime_options *o, err *e) {
    lowrank_type type;
    int          rc = choose_type(o, &type, e);
    *out = NULL;
    if (rc < 0) return rc;
    adapters *a = *out = calloc(1, sizeof *a);
    if (!a) return err_set_nomem(e);
    a->model = m;
    a->type = type;
    a->limit = o->adapter_bytes ? o->adapter_bytes : (size_t)1 << 30;
    a->on_change = o->on_adapters;
    a->ctx = o->adapters_ctx;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->returned, NULL);
    return 0;
}

static void drop_set(adapters *a, adapters_set *s) {
    for (adapters_set **at = &a->sets; *at; at = &(*at)->next) {
        if (*at != s) continue;
        *at = s->next;
        break;
    }
    for (int i = 0; i < s->n; i++) s->of[i]->sets--;
    a->bytes -= s->bytes;
    nn_adapter_set_free(s->set);
    free(s);
}

static void drop_adapter(adapters *a, kept_adapter *k) {
    for (kept_adapter **at = &a->kept; *at; at = &(*at)->next) {
        if (*at != k) continue;
        *at = k->next;
        break;
    }
    if (k->adapter) a->bytes -= k->adapter->bytes;
    nn_adapter_free(k->adapter);
    free(k->path);
    free(k);
}

void adapters_free(adapters *a) {
    if (!a) return;
    while (a->sets) drop_set(a, a->sets);
    while (a->kept) drop_adapter(a, a->kept);
    pthread_cond_destroy(&a->returned);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* With the lock held, so that what is said last is what is true. */
static void say_bytes(adapters *a) {
    if (!a->on_change || a->bytes == a->said) return;
    a->said = a->bytes;
    a->on_change(a->ctx, a->bytes);
}

/* --- room --- */

/* Drops what has been unused for longest until `more` bytes fit; false: everything left is in use. */
static bool make_room(adapters *a, size_t more) {
    while (a->bytes + more > a->limit) {
        adapters_set *oldest = NULL;
        kept_adapter *idle = NULL;
        for (adapters_set *s = a->sets; s; s = s->next) {
            if (!s->users && (!oldest || s->used_at < oldest->used_at)) oldest = s;
        }
        for (kept_adapter *k = a->kept; k; k = k->next) {
            if (!k->sets && (!idle || k->used_at < idle->used_at)) idle = k;
        }
        if (idle && (!oldest || idle->used_at <= oldest->used_at))
            drop_adapter(a, idle);
        else if (oldest)
            drop_set(a, oldest);
        else
            return false;
    }
    return true;
}

/* The same, but what a request is just about to give back counts, too. */
static bool await_room(adapters *a, size_t more) {
    struct timespec until;
    bool            room = make_room(a, more);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    while (!room && more <= a->limit && pthread_cond_timedwait(&a->returned, &a->lock, &until) == 0)
        room = make_room(a, more);
    return room;
}

static int no_room(const adapters *a, size_t more, err *e) {
    return err_set(e, a->bytes ? ERR_BUSY : ERR_LIMIT,
                   "the adapter takes %zu bytes; adapters may take %zu together, and %zu are in use", more, a->limit,
                   a->bytes);
}

/* --- files --- */

static bool look_at(const char *path, file_id *id, int i) {
    struct stat st;
    if (stat(path, &st) != 0) return false;
    id->at[i].device = (uint64_t)st.st_dev;
    id->at[i].inode = (uint64_t)st.st_ino;
    id->at[i].bytes = (uint64_t)st.st_size;
    id->at[i].seconds = st.st_mtim.tv_sec;
    id->at[i].nanoseconds = st.st_mtim.tv_nsec;
    return true;
}

static void identify(const char *path, file_id *id) {
    static const char *const names[] = { "adapter_model.safetensors", "adapters.safetensors" };
    *id = (file_id){ 0 };
    look_at(path, id, 0);
    if (!dir_exists(path)) return;
    for (size_t i = 0; i < 2; i++) {
        char *file = path_join(path, names[i]);
        bool  found = file && look_at(file, id, 1);
        free(file);
        if (found) break;
    }
    char *config = path_join(path, "adapter_config.json");
    if (config) look_at(config, id, 0);
    free(config);
}

/* The file as it is now. */
static int get(adapters *a, const char *path, kept_adapter **out, err *e) {
    file_id id;
    identify(path, &id);
    for (kept_adapter *k = a->kept; k; k = k->next) {
        if (strcmp(k->path, path) != 0 || memcmp(&k->id, &id, sizeof id) != 0) continue;
        *out = k;
        return 0;
    }
    kept_adapter *k = calloc(1, sizeof *k);
    if (!k) return err_set_nomem(e);
    k->id = id;
    k->path = strdup(path);
    int rc = k->path ? nn_adapter_open(&k->adapter, a->model, path, a->type, e) : err_set_nomem(e);
    if (rc == 0 && !await_room(a, k->adapter->bytes)) rc = no_room(a, k->adapter->bytes, e);
    if (rc < 0) {
        nn_adapter_free(k->adapter);
        free(k->path);
        free(k);
        return rc;
    }
    a->bytes += k->adapter->bytes;
    k->next = a->kept;
    a->kept = k;
    *out = k;
    return 0;
}

/* --- sets --- */

static adapters_set *find_set(const adapters *a, kept_adapter *const *of, const float *scales, int n) {
    for (adapters_set *s = a->sets; s; s = s->next) {
        if (s->n == n && memcmp(s->of, of, (size_t)n * sizeof *of) == 0 &&
            memcmp(s->scales, scales, (size_t)n * sizeof *scales) == 0)
            return s;
    }
    return NULL;
}

static int make_set(adapters *a, kept_adapter *const *of, const float *scales, int n, adapters_set **out, err *e) {
    nn_adapter_use uses[NN_SET_MOST];
    adapters_set  *s = calloc(1, sizeof *s);
    if (!s) return err_set_nomem(e);
    for (int i = 0; i < n; i++) uses[i] = (nn_adapter_use){ of[i]->adapter, scales[i] };
    int rc = nn_adapter_set_open(&s->set, a->model, uses, n, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->n = n;
    s->bytes = s->set->mem.used_bytes;
    memcpy(s->of, of, (size_t)n * sizeof *of);
    memcpy(s->scales, scales, (size_t)n * sizeof *scales);
    for (int i = 0; i < n; i++) of[i]->sets++;
    a->bytes += s->bytes;
    s->next = a->sets;
    a->sets = s;
    *out = s;
    return 0;
}

/* Everything that is named; pinned while the others are read. */
static int collect(adapters *a, const runtime_lora *list, size_t n, kept_adapter **of, float *scales, int *count,
                   err *e) {
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        char path[4096];
        if (list[i].scale == 0) continue;
        if (*count == NN_SET_MOST) return err_set(e, ERR_LIMIT, "at most %d adapters can be used at once", NN_SET_MOST);
        if (list[i].path.len >= sizeof path) return err_set(e, ERR_ARG, "an adapter's path is too long");
        memcpy(path, list[i].path.data, list[i].path.len);
        path[list[i].path.len] = '\0';
        if ((rc = get(a, path, &of[*count], e)) < 0) break;
        of[*count]->sets++;
        of[*count]->used_at = ++a->clock;
        scales[(*count)++] = (float)list[i].scale;
    }
    return rc;
}

int adapters_take(adapters *a, const runtime_lora *list, size_t n, adapters_set **out, err *e) {
    kept_adapter *of[NN_SET_MOST];
    float         scales[NN_SET_MOST];
    int           count = 0;
    *out = NULL;
    pthread_mutex_lock(&a->lock);
    int rc = collect(a, list, n, of, scales, &count, e);
    if (rc == 0 && count > 0 && !(*out = find_set(a, of, scales, count))) rc = make_set(a, of, scales, count, out, e);
    for (int i = 0; i < count; i++) of[i]->sets--;
    if (*out) {
        (*out)->users++;
        (*out)->used_at = ++a->clock;
    }
    say_bytes(a);
    pthread_mutex_unlock(&a->lock);
    return rc < 0 ? err_wrap(e, rc, "lora") : 0;
}

void adapters_give_back(adapters *a, adapters_set *s) {
    if (!s) return;
    pthread_mutex_lock(&a->lock);
    s->users--;
    (void)make_room(a, 0);
    say_bytes(a);
    pthread_cond_broadcast(&a->returned);
    pthread_mutex_unlock(&a->lock);
}

const nn_adapter_set *adapters_set_of(const adapters_set *s) { return s->set; }

void adapters_stat(adapters *a, adapters_stats *out) {
    *out = (adapters_stats){ 0 };
    pthread_mutex_lock(&a->lock);
    for (const kept_adapter *k = a->kept; k; k = k->next) out->n_loaded++;
    for (const adapters_set *s = a->sets; s; s = s->next) out->n_in_use += s->users > 0;
    out->bytes = a->bytes;
    pthread_mutex_unlock(&a->lock);
}
