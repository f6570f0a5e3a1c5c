/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of tiny models for tests: files of a golden, and a vocabulary of single characters. */
#ifndef TESTS_LETTERS_H
#define TESTS_LETTERS_H

#include <stddef.h>

/* A new directory with links to these files; the caller frees its name. */
char *letters_model(const char *golden, const char *const *files, size_t n);

void letters_put(const char *dir, const char *name, const char *text, size_t n);

/* 160 tokens: <eos>, the printable characters of ASCII, and from 150 on these special words. */
void letters_tokenizer(const char *dir, const char *const *words, size_t n, const char *chat_template);

#endif
