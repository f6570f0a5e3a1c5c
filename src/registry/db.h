/* SPDX-License-Identifier: Apache-2.0 */
/* The registry's database handle, for the files of this room only. */
#ifndef REGISTRY_DB_H
#define REGISTRY_DB_H

#include "registry/registry.h"

#include <sqlite3.h>

struct registry {
    sqlite3 *db;
    char    *path;
};

int registry_db_fail(registry *r, err *e); /* what SQLite says about the last call, as an error */
int registry_db_prepare(registry *r, sqlite3_stmt **s, const char *sql, err *e);
int registry_db_finish(registry *r, sqlite3_stmt *s, err *e); /* steps a statement without rows, and releases it */
/* The first column of every row; releases the statement. The caller frees each text and *out. */
int registry_db_texts(registry *r, sqlite3_stmt *s, char ***out, size_t *n, err *e);

/* A transaction around several calls of this room; registry_db_end commits when rc is 0, else rolls back, and returns
 * rc or what the commit said. */
int registry_db_begin(registry *r, err *e);
int registry_db_end(registry *r, int rc, err *e);

/* Makes every folder above the last '/' of a path. */
int registry_make_folder(const char *path, err *e);

#endif
