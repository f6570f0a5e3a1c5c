/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/auth.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_KEYS = 4096, MAX_KEY_BYTES = 512, TOKEN_BYTES = 24 };

struct auth_key {
    char          name[64];
    unsigned char digest[SHA256_DIGEST_LENGTH];
    double        rpm, tpm;         /* 0: unlimited */
    double        requests, tokens; /* in the buckets */
    int64_t       filled_us;        /* when they were filled last; 0: never */
    uint64_t      id;
    bool          owner; /* the capability token: a name alone would not tell, since keys may have any */
};

struct auth {
    auth_key **keys; /* each on its own: exchanges hold pointers */
    size_t     n;
    double     rpm, tpm;
    bool       required, tcp_only;
};

int auth_open(auth **out, err *e) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : err_set_nomem(e);
}

void auth_free(auth *a) {
    if (!a) return;
    for (size_t i = 0; i < a->n; i++) free(a->keys[i]);
    free(a->keys);
    free(a);
}

void auth_set_limits(auth *a, double rpm, double tpm) {
    a->rpm = rpm;
    a->tpm = tpm;
}

void auth_require(auth *a, bool tcp_only) {
    a->required = true;
    a->tcp_only = tcp_only;
}

bool auth_required(const auth *a, bool is_unix) { return a->required && !(is_unix && a->tcp_only); }

static void digest(view key, unsigned char out[SHA256_DIGEST_LENGTH]) {
    SHA256((const unsigned char *)key.data, key.len, out);
}

static int auth_add(auth *a, view name, view key, double rpm, double tpm, err *e) {
    auth_key **bigger;
    if (key.len < 8 || key.len > MAX_KEY_BYTES)
        return err_set(e, ERR_ARG, "a key must have 8 to %d characters", MAX_KEY_BYTES);
    if (name.len >= sizeof(*bigger)->name) return err_set(e, ERR_ARG, "a key's name may have at most 63 characters");
    if (a->n == MAX_KEYS) return err_set(e, ERR_LIMIT, "there are more than %d keys", MAX_KEYS);
    bigger = realloc(a->keys, (a->n + 1) * sizeof *bigger);
    if (!bigger) return err_set_nomem(e);
    a->keys = bigger;
    auth_key *k = calloc(1, sizeof *k);
    if (!k) return err_set_nomem(e);
    if (name.len)
        memcpy(k->name, name.data, name.len);
    else
        snprintf(k->name, sizeof k->name, "key%zu", a->n + 1);
    digest(key, k->digest);
    memcpy(&k->id, k->digest, sizeof k->id);
    k->id |= 1;
    k->rpm = rpm >= 0 ? rpm : a->rpm;
    k->tpm = tpm >= 0 ? tpm : a->tpm;
    a->keys[a->n++] = k;
    return 0;
}

int auth_add_owner(auth *a, view token, err *e) {
    int rc = auth_add(a, view_of("token"), token, 0, 0, e);
    if (rc == 0) a->keys[a->n - 1]->owner = true;
    return rc;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static int add_entry(auth *a, view line, err *e) {
    double rpm = -1, tpm = -1;
    size_t n = 0;
    while (n < line.len && !is_blank(line.data[n])) n++;
    view        entry = { line.data, n };
    const char *colon = memchr(entry.data, ':', entry.len);
    view        name = { entry.data, colon ? (size_t)(colon - entry.data) : 0 };
    view        key = colon ? (view){ colon + 1, entry.len - name.len - 1 } : entry;
    while (n < line.len) {
        char option[40] = "";
        while (n < line.len && is_blank(line.data[n])) n++;
        size_t from = n;
        while (n < line.len && !is_blank(line.data[n])) n++;
        if (n == from) break;
        if (n - from >= sizeof option) return err_set(e, ERR_ARG, "an option of the key is too long");
        memcpy(option, line.data + from, n - from);
        char  *end = NULL;
        double v = strlen(option) > 4 ? strtod(option + 4, &end) : -1;
        if (!end || *end || !(v > 0) || !isfinite(v))
            return err_set(e, ERR_ARG, "expected rpm=N or tpm=N, got '%s'", option);
        if (strncmp(option, "rpm=", 4) == 0)
            rpm = v;
        else if (strncmp(option, "tpm=", 4) == 0)
            tpm = v;
        else
            return err_set(e, ERR_ARG, "expected rpm=N or tpm=N, got '%s'", option);
    }
    return auth_add(a, name, key, rpm, tpm, e);
}

int auth_add_lines(auth *a, const char *text, const char *origin, err *e) {
    int number = 0;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n,");
        view   line = { p, strcspn(p, "#") < n ? strcspn(p, "#") : n };
        number++;
        /* A comment may hold commas: it goes to the line's end. */
        if (line.len < n) n = strcspn(p, "\n");
        while (line.len && is_blank(line.data[0])) {
            line.data++;
            line.len--;
        }
        while (line.len && is_blank(line.data[line.len - 1])) line.len--;
        if (line.len) {
            int rc = add_entry(a, line, e);
            if (rc < 0) return err_wrap(e, rc, "%s: entry %d", origin, number);
        }
        p += n;
        if (*p) p++;
    }
    return 0;
}

auth_key *auth_find(auth *a, view presented) {
    unsigned char d[SHA256_DIGEST_LENGTH];
    auth_key     *found = NULL;
    digest(presented, d);
    for (size_t i = 0; i < a->n; i++) { /* all of them, always */
        if (CRYPTO_memcmp(d, a->keys[i]->digest, sizeof d) == 0) found = a->keys[i];
    }
    return found;
}

auth_key *auth_by_id(auth *a, uint64_t id) {
    for (size_t i = 0; i < a->n; i++) {
        if (a->keys[i]->id == id) return a->keys[i];
    }
    return NULL;
}

const char *auth_key_name(const auth_key *k) { return k->name; }
uint64_t    auth_key_id(const auth_key *k) { return k->id; }
bool        auth_key_is_owner(const auth_key *k) { return k->owner; }

static void fill(auth_key *k, int64_t now_us) {
    double minutes = k->filled_us ? (double)(now_us - k->filled_us) / 60e6 : 1.0;
    k->requests = fmin(k->rpm, k->requests + minutes * k->rpm);
    k->tokens = fmin(k->tpm, k->tokens + minutes * k->tpm);
    k->filled_us = now_us;
}

bool auth_admit(auth_key *k, int64_t now_us, double *retry_s) {
    *retry_s = 0;
    fill(k, now_us);
    if (k->rpm > 0 && k->requests < 1) *retry_s = (1 - k->requests) / k->rpm * 60;
    if (k->tpm > 0 && k->tokens <= 0) *retry_s = fmax(*retry_s, (1 - k->tokens) / k->tpm * 60);
    if (*retry_s > 0) return false;
    k->requests -= 1;
    return true;
}

void auth_charge(auth_key *k, int64_t now_us, int64_t tokens) {
    fill(k, now_us);
    k->tokens -= (double)tokens;
}

void auth_inherit(auth *to, const auth *from) {
    for (size_t i = 0; i < to->n; i++) {
        for (size_t j = 0; j < from->n; j++) {
            if (memcmp(to->keys[i]->digest, from->keys[j]->digest, SHA256_DIGEST_LENGTH) != 0) continue;
            to->keys[i]->requests = from->keys[j]->requests;
            to->keys[i]->tokens = from->keys[j]->tokens;
            to->keys[i]->filled_us = from->keys[j]->filled_us;
        }
    }
}

/* --- the capability token --- */

static int create_token(const char *path, str *out, err *e) {
    unsigned char raw[TOKEN_BYTES];
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw) return err_set_errno(e, "cannot get random numbers");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return err_set_errno(e, "cannot create %s", path);
    str_puts(out, "hearth-");
    for (size_t i = 0; i < sizeof raw; i++) str_printf(out, "%02x", raw[i]);
    bool ok = str_ok(out) && write(fd, out->data, out->len) == (ssize_t)out->len && write(fd, "\n", 1) == 1;
    if (fsync(fd) != 0 || close(fd) != 0) ok = false;
    return ok ? 0 : err_set_errno(e, "cannot write %s", path);
}

int auth_token_file(const char *path, str *out, err *e) {
    struct stat st;
    char       *text = NULL;
    size_t      n = 0;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? create_token(path, out, e) : err_set_errno(e, "cannot read %s", path);
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_ARG, "%s is not a regular file", path);
    if ((st.st_mode & 077) != 0) return err_set(e, ERR_ARG, "%s may be read by others; its mode must be 0600", path);
    int rc = file_read(&text, &n, path, 4096, e);
    if (rc < 0) return rc;
    n = strcspn(text, " \t\r\n");
    str_append(out, text, n);
    free(text);
    return n >= 8 ? 0 : err_set(e, ERR_FORMAT, "%s does not hold a token", path);
}
