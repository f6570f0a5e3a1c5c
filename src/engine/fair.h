/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fair shares between clients.
 *
 * Every client has a virtual time: the tokens that were evaluated for it. Whoever has the least goes first. A client
 * that comes (back) begins at the time of those that are busy, so that being away earns nothing and the past of a
 * client that was alone costs nothing. The table is bounded: a client that finds it full of busy ones shares entry 0
 * with others in the same position. Used by the engine thread only.
 */
#ifndef ENGINE_FAIR_H
#define ENGINE_FAIR_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FAIR_CLIENTS = 256,
    FAIR_LAG = 256, /* tokens that a client with nothing running lies behind before it takes another one's place */
};

typedef struct fair_client {
    uint64_t client, time;
    int      n_open, n_running; /* sequences */
} fair_client;

typedef struct fair {
    fair_client of[FAIR_CLIENTS];
    int         n; /* entries ever used; entry 0 is the shared one */
    uint64_t    now;
} fair;

fair_client *fair_enter(fair *f, uint64_t client); /* a sequence of this client came */
void         fair_leave(fair *f, fair_client *c);  /* one ended */

#endif
