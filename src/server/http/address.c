/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define MAPPED 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff
#define V4(a, b, c, n)                                                                                                 \
    { { { MAPPED, a, b, c, 0 } }, 96 + (n) }

/* IANA's special-purpose registries: what is not, or not surely, a machine in the public. */
static const address_range special[] = {
    V4(0, 0, 0, 8),
    V4(10, 0, 0, 8),
    V4(100, 64, 0, 10),
    V4(127, 0, 0, 8),
    V4(169, 254, 0, 16),
    V4(172, 16, 0, 12),
    V4(192, 0, 0, 24),
    V4(192, 0, 2, 24),
    V4(192, 88, 99, 24),
    V4(192, 168, 0, 16),
    V4(198, 18, 0, 15),
    V4(198, 51, 100, 24),
    V4(203, 0, 113, 24),
    V4(224, 0, 0, 4),
    V4(240, 0, 0, 4),
    { { { 0x20, 0x01, 0x00 } }, 23 },
    { { { 0x20, 0x01, 0x0d, 0xb8 } }, 32 },
    { { { 0x20, 0x02 } }, 16 },
    { { { 0x3f, 0xff, 0x00 } }, 20 },
};

static const address_range mapped = V4(0, 0, 0, 0);
static const address_range global = { { { 0x20 } }, 3 };                        /* all that was given out of IPv6 */
static const address_range translated = { { { 0x00, 0x64, 0xff, 0x9b } }, 96 }; /* to IPv4, by the network (NAT64) */

bool address_of(address *out, const struct sockaddr *from) {
    if (from->sa_family == AF_INET) {
        memcpy(out, &mapped.first, sizeof *out);
        memcpy(out->bytes + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, sizeof *out);
    } else {
        return false;
    }
    return true;
}

bool address_is_loopback(const struct sockaddr *from) {
    static const address_range v4 = V4(127, 0, 0, 8), v6 = { { { [15] = 1 } }, 128 };
    address                    a;
    return address_of(&a, from) && (address_is_within(&a, &v4) || address_is_within(&a, &v6));
}

bool address_is_within(const address *a, const address_range *r) {
    int whole = r->bits / 8, rest = r->bits % 8;
    if (memcmp(a->bytes, r->first.bytes, (size_t)whole) != 0) return false;
    return rest == 0 || (a->bytes[whole] ^ r->first.bytes[whole]) >> (8 - rest) == 0;
}

bool address_is_public(const address *a) {
    address inner = *a;
    if (address_is_within(a, &translated)) {
        inner = mapped.first;
        memcpy(inner.bytes + 12, a->bytes + 12, 4);
    }
    if (!address_is_within(&inner, &mapped) && !address_is_within(&inner, &global)) return false;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (address_is_within(&inner, &special[i])) return false;
    }
    return true;
}

int address_range_read(address_range *out, const char *text, err *e) {
    char        name[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t      n = slash ? (size_t)(slash - text) : strlen(text);
    uint8_t     four[4];
    int         most = 128;
    if (n == 0 || n >= sizeof name) return err_set(e, ERR_ARG, "'%.60s' is not an address or a network", text);
    memcpy(name, text, n);
    name[n] = '\0';
    if (inet_pton(AF_INET, name, four) == 1) {
        out->first = mapped.first;
        memcpy(out->first.bytes + 12, four, 4);
        most = 32;
    } else if (inet_pton(AF_INET6, name, out->first.bytes) != 1) {
        return err_set(e, ERR_ARG, "'%.60s' is not an address or a network", text);
    }
    char *end = NULL;
    long  bits = slash ? strtol(slash + 1, &end, 10) : most;
    if (slash && (end == slash + 1 || *end || bits < 0 || bits > most))
        return err_set(e, ERR_ARG, "'%.60s': a network of this kind has 0 to %d bits", text, most);
    out->bits = 128 - most + (int)bits;
    return 0;
}
