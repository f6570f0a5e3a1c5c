/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of the worker protocol as tables (wire_codec.h).
 *
 * A new member of one of these structs is added to its table, or listed there as WIRE_UNSENT with the reason; until
 * then test_host_wire fails. Every change of a table is a new WIRE_VERSION.
 */
#ifndef HOST_WIRE_TABLES_H
#define HOST_WIRE_TABLES_H

#include "host/wire.h"
#include "host/wire_codec.h"

enum {
    WIRE_MAX_SHORT = 4096,     /* bytes of names and paths */
    WIRE_MAX_LIST = 1 << 16,   /* stop texts, breakers */
    WIRE_MAX_IDS = 1 << 26,    /* tokens in one frame */
    WIRE_MAX_TOP = 20,         /* rivals of a token */
    WIRE_MAX_PIECE = 64 << 10, /* bytes of a token */
    WIRE_MAX_VECTOR = 1 << 20,
    WIRE_MAX_CHOICES = 128,
};

extern const wire_table wire_table_err;               /* err */
extern const wire_table wire_table_request;           /* runtime_request */
extern const wire_table wire_table_event;             /* runtime_event */
extern const wire_table wire_table_open;              /* wire_open */
extern const wire_table wire_item_lora;               /* runtime_lora */
extern const wire_table wire_table_settings;          /* runtime_settings */
extern const wire_table wire_table_settings_sampling; /* sampling_params without its arrays */
extern const wire_table wire_table_need;              /* need */
extern const wire_table wire_table_info;              /* runtime_info */
extern const wire_table wire_table_text_call;         /* wire_text_call */
extern const wire_table wire_table_ids_call;          /* wire_ids_call */
extern const wire_table wire_table_result;            /* wire_result */
extern const wire_table wire_table_ping;              /* int: the log level */
extern const wire_table wire_table_pong;              /* wire_pong */
extern const wire_table wire_table_loading;           /* float: the fraction */

#endif
