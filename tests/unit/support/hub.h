/* SPDX-License-Identifier: Apache-2.0 */
/* The misbehaving hub and registry of tests/registry/server.py, as a child of the test. */
#ifndef UNIT_SUPPORT_HUB_H
#define UNIT_SUPPORT_HUB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct test_hub {
    pid_t pid;
    int   in;   /* its standard input: it ends when this is closed */
    char *root; /* where its files lie */
    char  url[64], other_url[64], tls_url[64];
} test_hub;

/* Starts it on an empty folder. Skips the test where there is no python3. */
void test_hub_start(test_hub *h);
void test_hub_stop(test_hub *h);

/* Puts a copy of a file (absolute, or below the source tree) at a path below the root. */
void test_hub_add(const test_hub *h, const char *path, const char *source);
void test_hub_write(const test_hub *h, const char *path, const char *text);

void    test_hub_fault(const test_hub *h, const char *json); /* "{}": none. Forgets what was seen */
char   *test_hub_seen(const test_hub *h);                    /* JSON; the caller frees */
int64_t test_hub_number(const test_hub *h, const char *key); /* a number of it */
int64_t test_hub_bytes(const test_hub *h, const char *path); /* sent of this file */

/* What tests of pulls ask about files. */
bool test_same_bytes(const char *a, const char *b);         /* false if there is no a; b must be there */
int  test_count_like(const char *dir, const char *pattern); /* files and folders of this name, at any depth */
/* Files of a moment: where there is a file system in memory, no test waits for a disk. */
void test_avoid_the_disk(void);

#endif
