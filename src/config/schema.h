/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings as data: a table of keys, and values that remember where they came from.
 *
 * One table per kind of file (server.h, model.h) says everything about a key: its path, type, range, default, help, the
 * environment variable and the flag that set it too. The reader, its messages, `hearth config` and the documentation
 * come from that table. Values of several origins are laid over each other; the later origin of config_origin wins.
 */
#ifndef CONFIG_SCHEMA_H
#define CONFIG_SCHEMA_H

#include "base/arena.h"
#include "base/str.h"
#include "config/report.h"
#include "config/yaml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum config_type {
    CONFIG_BOOL,
    CONFIG_INT,
    CONFIG_REAL,
    CONFIG_BYTES,   /* 8192, 512M, 4GiB -> integer */
    CONFIG_SECONDS, /* 300, 90s, 5m, 1.5h, 2d; "forever" or a negative number -> real */
    CONFIG_TEXT,
    CONFIG_CHOICE, /* one of choices */
    CONFIG_TEXTS,  /* a list of texts, or one */
    CONFIG_LIST,   /* a list of maps with the keys of items */
    CONFIG_NAMED,  /* a map from names to maps with the keys of items */
} config_type;

typedef struct config_schema config_schema;

typedef struct config_key {
    const char          *path; /* "transport.port"; without a dot: at the top */
    config_type          type;
    double               min, max; /* of numbers; both 0: any */
    const char          *choices;  /* "text|json" */
    const char          *dflt;     /* as written in a file; NULL: none */
    const char          *help;
    const char          *env, *flag; /* NULL: none */
    double               flag_unit;  /* what 1 of the flag means here; 0: the same */
    const char          *flag_means; /* of a flag without a value: what it sets */
    const config_schema *items;
    const char          *refused;  /* why no value is taken; of a CONFIG_BOOL: why not true */
    bool                 required; /* inside items */
    bool                 secret;   /* shown as *** */
    bool                 file;     /* the name of a file: ~/ is the home, and a file's names begin where it lies */
} config_key;

typedef struct config_section {
    const char *name, *help;
} config_section;

struct config_schema {
    const config_key     *keys;
    size_t                n;
    const config_section *sections; /* in the order of documents; ends with a NULL name; NULL: none */
};

typedef enum config_origin {
    CONFIG_UNSET,
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_SERVER, /* server.yaml */
    CONFIG_FROM_REGISTRY,
    CONFIG_FROM_MODEL, /* the model's YAML file */
    CONFIG_FROM_ENV,
    CONFIG_FROM_FLAG,
} config_origin;

typedef struct config_values config_values;

typedef struct config_value {
    config_origin      origin;
    const char        *where; /* "/etc/server.yaml:7", "HEARTH_PORT", "--port"; NULL: the default */
    bool               boolean;
    int64_t            integer;
    double             real; /* also of integers */
    const char        *text; /* TEXT and CHOICE; of numbers what was written */
    const char *const *texts;
    size_t             n_texts;
    config_values     *items; /* LIST and NAMED */
    size_t             n_items;
} config_value;

struct config_values {
    const config_schema *schema;
    const char          *name; /* an entry of NAMED */
    config_value        *v;    /* one per key */
};

/* Everything unset, or everything at its default. false: out of memory. */
bool config_values_init(config_values *out, const config_schema *s, arena *mem);
void config_values_defaults(config_values *v, arena *mem);

/* Reads a file's text over what is there. Problems go to the report; what was sound is read all the same. */
void config_read(config_values *out, view text, config_origin origin, arena *mem, config_report *r);
/* One value as the environment or a flag gives it; lists are separated by commas. unit 0: 1. */
int config_set(config_values *out, const config_key *k, const char *text, double unit, config_origin origin,
               const char *where, arena *mem, err *e);
int config_set_texts(config_values *out, const config_key *k, const char *const *texts, size_t n, config_origin origin,
                     const char *where, arena *mem, err *e);
/* What src has set, of a higher or equal origin, replaces what dst has at the same path. */
void config_overlay(config_values *dst, const config_values *src);

const config_key   *config_find_key(const config_schema *s, const char *path);
const config_value *config_get(const config_values *v, const char *path);  /* never NULL; asserts that the key exists */
const char         *config_text(const config_values *v, const char *path); /* NULL when unset or empty */
int64_t             config_int(const config_values *v, const char *path);
double              config_real(const config_values *v, const char *path);
bool                config_bool(const config_values *v, const char *path);

/* The valid name that was probably meant, or NULL. */
const char *config_nearest(const char *name, const char *const *valid, size_t n);

const char *config_type_words(const config_key *k, str *scratch); /* "an integer from 0 to 65535" */
const char *config_origin_name(config_origin o);

/* The value as YAML writes it on one line; unset: "null". Secrets are masked. */
void config_value_write(const config_key *k, const config_value *v, bool json, str *out);

#endif
