/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML text as a tree that knows its lines.
 *
 * Only what a configuration needs: one document of maps, lists and scalars. Anchors, aliases, merge keys and tags are
 * refused, so a small text never becomes a large tree; depth, size and memory are bounded. JSON is YAML, too.
 */
#ifndef CONFIG_YAML_H
#define CONFIG_YAML_H

#include "base/arena.h"
#include "base/str.h"
#include "config/report.h"

#include <stdbool.h>
#include <stddef.h>

enum { CONFIG_MAX_BYTES = 1 << 20, CONFIG_MAX_DEPTH = 16, CONFIG_MAX_CHILDREN = 1024 };

typedef enum config_kind { CONFIG_SCALAR, CONFIG_SEQUENCE, CONFIG_MAPPING } config_kind;

typedef struct config_node config_node;
struct config_node {
    config_kind  kind;
    int          line, column; /* of the value, from 1 */
    bool         quoted;       /* a scalar in quotes or a block: text, whatever it looks like */
    view         text;         /* of a scalar; NUL-terminated */
    view         key;          /* in a mapping; NUL-terminated */
    int          key_line, key_column;
    int          count;
    config_node *first, *last, *next;
};

/* NULL for a text that is not YAML, after reporting it, or for a text that holds nothing. The tree lives in mem. */
config_node *config_yaml_read(view text, arena *mem, config_report *r);

#endif
