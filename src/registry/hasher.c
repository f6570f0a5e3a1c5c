/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/hasher.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 256 << 10 };

struct hasher {
    pthread_mutex_t lock; /* guards allowed, done, stop, ended, failed, error, sum */
    pthread_cond_t  changed;
    pthread_t       thread;
    int             fd;
    int64_t         size, allowed, done;
    bool            stop, ended;
    int             failed; /* an error code, or 0 */
    err             error;
    uint8_t         sum[EVP_MAX_MD_SIZE];
};

/* Reads [at, at + n) into the digest; a file that ends earlier was cut by someone else. */
static int eat(hasher *h, EVP_MD_CTX *md, char *block, int64_t at, size_t n, err *e) {
    size_t got = 0;
    while (got < n) {
        ssize_t k = pread(h->fd, block + got, n - got, at + (int64_t)got);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return err_set_errno(e, "cannot read the download back");
        if (k == 0) return err_set(e, ERR_IO, "the download was cut short by another program");
        got += (size_t)k;
    }
    return EVP_DigestUpdate(md, block, n) == 1 ? 0 : err_set_nomem(e);
}

static void *work(void *arg) {
    hasher     *h = arg;
    char       *block = malloc(BLOCK);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    uint8_t     sum[EVP_MAX_MD_SIZE] = { 0 };
    err         e = { 0 };
    int         rc = block && md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 ? 0 : err_set_nomem(&e);
    int64_t     at = 0;
    pthread_mutex_lock(&h->lock);
    while (rc == 0 && at < h->size && !h->stop) {
        if (at == h->allowed) {
            pthread_cond_wait(&h->changed, &h->lock);
            continue;
        }
        size_t n = h->allowed - at < BLOCK ? (size_t)(h->allowed - at) : BLOCK;
        pthread_mutex_unlock(&h->lock);
        rc = eat(h, md, block, at, n, &e);
        at += (int64_t)n;
        pthread_mutex_lock(&h->lock);
        h->done = at;
    }
    if (rc == 0 && EVP_DigestFinal_ex(md, sum, NULL) != 1) rc = err_set_nomem(&e);
    h->failed = rc;
    h->error = e;
    memcpy(h->sum, sum, sizeof sum);
    h->ended = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    EVP_MD_CTX_free(md);
    free(block);
    return NULL;
}

int hasher_open(hasher **out, int fd, int64_t size, err *e) {
    hasher *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return err_set_nomem(e);
    h->fd = fd;
    h->size = size;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    if (pthread_create(&h->thread, NULL, work, h) != 0) {
        pthread_cond_destroy(&h->changed);
        pthread_mutex_destroy(&h->lock);
        free(h);
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    *out = h;
    return 0;
}

void hasher_allow(hasher *h, int64_t bytes) {
    pthread_mutex_lock(&h->lock);
    if (bytes > h->allowed) h->allowed = bytes;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

int64_t hasher_done(hasher *h) {
    pthread_mutex_lock(&h->lock);
    int64_t done = h->done;
    pthread_mutex_unlock(&h->lock);
    return done;
}

bool hasher_ready(hasher *h) {
    pthread_mutex_lock(&h->lock);
    bool ended = h->ended;
    pthread_mutex_unlock(&h->lock);
    return ended;
}

int hasher_result(hasher *h, uint8_t sum[32], err *e) {
    pthread_mutex_lock(&h->lock);
    while (!h->ended) pthread_cond_wait(&h->changed, &h->lock);
    memcpy(sum, h->sum, 32);
    int rc = h->failed;
    if (rc < 0 && e) *e = h->error;
    pthread_mutex_unlock(&h->lock);
    return rc;
}

void hasher_free(hasher *h) {
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
