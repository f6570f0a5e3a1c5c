/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets: TCP, a Unix socket that only its owner may open, or what the service manager hands over. */
#include "base/log.h"
#include "server/http/address.h"
#include "server/http/holder.h"
#include "server/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static void on_accept(struct evconnlistener *ev, evutil_socket_t fd, struct sockaddr *peer, int len, void *ctx) {
    listener *l = ctx;
    listener  here = *l;
    (void)ev;
    (void)peer;
    (void)len;
    if (!l->is_unix && !l->is_loopback) { /* bound to all addresses: this connection may still be a local one */
        struct sockaddr_storage own;
        socklen_t               n = sizeof own;
        if (getsockname(fd, (struct sockaddr *)&own, &n) == 0)
            here.is_loopback = address_is_loopback((struct sockaddr *)&own);
    }
    conn_accept(l->server, fd, &here);
}

/* No descriptors left: the listener would spin. It rests for a moment. */
static void on_accept_error(struct evconnlistener *ev, void *ctx) {
    listener      *l = ctx;
    struct timeval soon = { .tv_usec = 100000 };
    (void)ev;
    log_warn("server", "cannot accept a connection: %s", strerror(errno));
    for (size_t i = 0; i < l->server->n_listeners; i++) evconnlistener_disable(l->server->listeners[i].ev);
    event_add(l->server->retry_timer, &soon);
}

static int add_listener(server *s, int fd, bool is_unix, bool loopback, err *e) {
    listener *l = &s->listeners[s->n_listeners];
    if (s->n_listeners == MAX_LISTENERS)
        return err_set(e, ERR_LIMIT, "there are more than %d sockets to listen on", MAX_LISTENERS);
    *l = (listener){ .is_unix = is_unix, .is_tls = !is_unix && s->tls, .is_loopback = loopback, .server = s };
    evutil_make_socket_nonblocking(fd);
    l->ev = evconnlistener_new(s->base, on_accept, l, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, fd);
    if (!l->ev) return err_set_errno(e, "cannot listen");
    evconnlistener_set_error_cb(l->ev, on_accept_error);
    s->n_listeners++;
    return 0;
}

/* --- TCP --- */

static int port_of(int fd) {
    struct sockaddr_storage a;
    socklen_t               n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 0;
    if (a.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)(void *)&a)->sin_port);
    return a.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)(void *)&a)->sin6_port) : 0;
}

/* With the one who has the port, if that can be seen: often another server of models, which all like the same one. */
static int refuse_port(const char *name, int port, err *e) {
    char holder[100];
    int  why = errno, rc = err_set_errno(e, "cannot listen on %s port %d", name, port);
    if (why != EADDRINUSE) return rc;
    if (port_holder(port, holder, sizeof holder))
        return err_set(e, rc, "cannot listen on %s port %d: %s is using it; choose another with --port N", name, port,
                       holder);
    return err_set(e, rc,
                   "cannot listen on %s port %d: another program is using it (Ollama's port is 11434, too); choose "
                   "another with --port N",
                   name, port);
}

static int open_tcp(server *s, err *e) {
    struct addrinfo want = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *list = NULL;
    char            port[16];
    int             rc, one = 1, fd = -1;
    snprintf(port, sizeof port, "%d", s->options.tcp_port);
    if ((rc = getaddrinfo(s->options.tcp_host, port, &want, &list)) != 0)
        return err_set(e, ERR_ARG, "--host %s: %s", s->options.tcp_host, gai_strerror(rc));
    /* The first address that works; `localhost` means IPv4 first, where clients look. */
    for (int family = AF_INET, turn = 0; turn < 2 && fd < 0; family = AF_INET6, turn++) {
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            if (a->ai_family != family) continue;
            fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (fd < 0) continue;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
            if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
                s->port = port_of(fd);
                rc = add_listener(s, fd, false, address_is_loopback(a->ai_addr), e);
                if (rc < 0) close(fd);
                freeaddrinfo(list);
                return rc;
            }
            int saved = errno;
            close(fd);
            fd = -1;
            errno = saved;
        }
    }
    rc = refuse_port(s->options.tcp_host, s->options.tcp_port, e);
    freeaddrinfo(list);
    return rc;
}

/* --- the Unix socket --- */

/* A socket that nobody answers on is a leftover of a server that was killed. */
static int remove_stale(const char *path, const struct sockaddr_un *a, err *e) {
    struct stat st;
    if (lstat(path, &st) != 0) return errno == ENOENT ? 0 : err_set_errno(e, "cannot examine %s", path);
    if (!S_ISSOCK(st.st_mode)) return err_set(e, ERR_ARG, "%s exists and is not a socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return err_set_errno(e, "cannot open a socket");
    int rc = connect(fd, (const struct sockaddr *)a, sizeof *a);
    int why = errno;
    close(fd);
    if (rc == 0 || why != ECONNREFUSED) return err_set(e, ERR_IO, "another server is listening on %s", path);
    if (unlink(path) != 0) return err_set_errno(e, "cannot remove the stale socket %s", path);
    return 0;
}

static int open_unix(server *s, err *e) {
    const char        *path = s->options.socket_path;
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct stat        st;
    int                rc;
    if (strlen(path) >= sizeof a.sun_path) return err_set(e, ERR_ARG, "the socket's path is too long: %s", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    if ((rc = remove_stale(path, &a, e)) < 0) return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_set_errno(e, "cannot open a socket");
    mode_t old = umask(0177);
    rc = bind(fd, (struct sockaddr *)&a, sizeof a);
    umask(old);
    if (rc != 0 || listen(fd, BACKLOG) != 0 || stat(path, &st) != 0) {
        rc = err_set_errno(e, "cannot listen on %s", path);
        close(fd);
        return rc;
    }
    s->socket_path = strdup(path);
    s->socket_dev = (uint64_t)st.st_dev;
    s->socket_ino = (uint64_t)st.st_ino;
    if ((rc = add_listener(s, fd, true, false, e)) < 0) close(fd);
    return rc;
}

static int take_inherited(server *s, int fd, err *e) {
    struct sockaddr_storage a;
    socklen_t               n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        return err_set_errno(e, "inherited descriptor %d is not a socket", fd);
    if (a.ss_family != AF_UNIX && !s->port) s->port = port_of(fd);
    return add_listener(s, fd, a.ss_family == AF_UNIX, address_is_loopback((struct sockaddr *)&a), e);
}

/* --- TLS --- */

/* HTTP/2 where a client has it: gRPC needs it. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                           unsigned in_len, void *ctx) {
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char             *chosen = NULL;
    (void)ssl;
    (void)ctx;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours - 1, in, in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int open_tls(server *s, err *e) {
    s->tls = SSL_CTX_new(TLS_server_method());
    if (!s->tls) return err_set(e, ERR_NOMEM, "cannot set up TLS");
    SSL_CTX_set_min_proto_version(s->tls, TLS1_2_VERSION);
    SSL_CTX_set_mode(s->tls, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(s->tls, choose_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(s->tls, s->options.tls_cert) != 1)
        return err_set(e, ERR_ARG, "--tls-cert %s: %s", s->options.tls_cert, ERR_reason_error_string(ERR_get_error()));
    if (SSL_CTX_use_PrivateKey_file(s->tls, s->options.tls_key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(s->tls) != 1)
        return err_set(e, ERR_ARG, "--tls-key %s: %s", s->options.tls_key, ERR_reason_error_string(ERR_get_error()));
    return 0;
}

int server_listen(server *s, err *e) {
    const server_options *o = &s->options;
    int                   rc;
    if (o->tls_cert && (rc = open_tls(s, e)) < 0) return rc;
    for (size_t i = 0; i < o->n_inherited; i++) {
        if ((rc = take_inherited(s, o->inherited[i], e)) < 0) return rc;
    }
    if (o->n_inherited) return 0;
    if (o->tcp_host && (rc = open_tcp(s, e)) < 0) return rc;
    if (o->socket_path && (rc = open_unix(s, e)) < 0) return rc;
    return s->n_listeners ? 0 : err_set(e, ERR_ARG, "there is nothing to listen on: neither TCP nor a Unix socket");
}

void server_close_listeners(server *s) {
    struct stat st;
    for (size_t i = 0; i < s->n_listeners; i++) evconnlistener_free(s->listeners[i].ev);
    s->n_listeners = 0;
    if (!s->socket_path) return;
    /* A new server may have put its own socket there. */
    if (lstat(s->socket_path, &st) == 0 && (uint64_t)st.st_dev == s->socket_dev && (uint64_t)st.st_ino == s->socket_ino)
        unlink(s->socket_path);
}
