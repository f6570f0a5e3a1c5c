/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of other machines: which of them are out in the public, and networks as people write them.
 *
 * An address is 16 bytes. One of IPv4 is kept as IPv6 maps it (::ffff:a.b.c.d), so that the two ways of writing it are the
 * same address here.
 */
#ifndef SERVER_HTTP_ADDRESS_H
#define SERVER_HTTP_ADDRESS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct address {
    uint8_t bytes[16];
} address;

typedef struct address_range {
    address first;
    int     bits; /* of the 128 that count */
} address_range;

bool address_of(address *out, const struct sockaddr *from); /* false: neither IPv4 nor IPv6 */
bool address_is_loopback(const struct sockaddr *from);      /* only this machine is there */
/* Loopback, private, link-local, shared, reserved, multicast and translated addresses are not: whoever may name an address
 * must not reach through us what only we can reach. */
bool address_is_public(const address *a);

int  address_range_read(address_range *out, const char *text, err *e); /* "10.0.0.0/8", "fd00::/8", one address */
bool address_is_within(const address *a, const address_range *r);

#endif
