/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's process. */
#include "host/decoder/decoder.h"
#include "host/decoder/reply.h"
#include "host/worker/sandbox.h"
#include "media/media.h"
#include "media/sound.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ADDRESS_BYTES ((rlim_t)1 << 30) /* 40 million pixels: coefficients of a progressive JPEG and the result */
enum { CPU_SECONDS = 20, SOUND_SECONDS = 40, MAX_FILES = 16 };

static bool read_all(int fd, void *to, size_t n) {
    for (char *at = to; n;) {
        ssize_t k = read(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t n) {
    for (const char *at = from; n;) {
        ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static int limit(int which, rlim_t to, err *e) {
    struct rlimit l = { to, to };
    return setrlimit((__rlimit_resource_t)which, &l) == 0 ? 0 : err_set_errno(e, "cannot limit the decoder");
}

/* A sanitizer's own tables take more address space than any limit that means something. */
static int limits(bool hear, err *e) {
    rlim_t seconds = hear ? SOUND_SECONDS : CPU_SECONDS;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return limit(RLIMIT_CPU, seconds, e);
#else
    int rc = limit(RLIMIT_AS, ADDRESS_BYTES, e);
    return rc < 0 ? rc : limit(RLIMIT_CPU, seconds, e);
#endif
}

/* What the process made of its file: one of the two. */
typedef struct made {
    pixels picture;
    sound  heard;
} made;

static int decode(int socket, bool hear, made *out, err *e) {
    uint64_t bytes;
    if (!read_all(socket, &bytes, sizeof bytes)) return err_set(e, ERR_IO, "no file arrived");
    char *data = malloc(bytes ? (size_t)bytes : 1);
    if (!data) return err_set_nomem(e);
    int rc = read_all(socket, data, (size_t)bytes) ? 0 : err_set(e, ERR_IO, "the file did not arrive");
    if (rc == 0)
        rc = hear ? media_sound_decode(&out->heard, data, (size_t)bytes, MEDIA_SOUND_SECONDS, e)
                  : media_decode(&out->picture, data, (size_t)bytes, &media_default_limits, e);
    free(data);
    return rc;
}

int decoder_run(int socket, bool hear, bool no_sandbox) {
    sandbox_options o = { .missing = SANDBOX_WARN, .max_files = MAX_FILES };
    made            m = { 0 };
    err             e = { 0 };
    int             rc = limits(hear, &e);
    if (rc == 0 && !no_sandbox) rc = sandbox_enter(&o, &e);
    if (rc == 0) rc = decode(socket, hear, &m, &e);
    decoder_reply r = { rc, m.picture.width, m.picture.height, m.heard.n, rc < 0 ? (int32_t)strlen(e.msg) : 0 };
    const void   *data = hear ? (const void *)m.heard.at : m.picture.rgb;
    size_t        bytes = hear ? (size_t)m.heard.n * sizeof *m.heard.at : pixels_bytes(&m.picture);
    bool          ok = write_all(socket, &r, sizeof r) &&
              (rc < 0 ? write_all(socket, e.msg, (size_t)r.n_text) : write_all(socket, data, bytes));
    pixels_deinit(&m.picture);
    sound_deinit(&m.heard);
    return ok ? 0 : 1;
}
