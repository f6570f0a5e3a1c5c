/* SPDX-License-Identifier: Apache-2.0 */
/* Families that can be written as a directory from a GGUF file, and what such a file does not say about them. */
#ifndef CONVERT_FAMILIES_H
#define CONVERT_FAMILIES_H

#include "nn/bind.h"
#include "nn/model.h"

typedef struct hf_family {
    const char *arch;       /* general.architecture */
    const char *model_type; /* of config.json */
    const char *class_name; /* in its architectures */
    const char *prefer;     /* parts of names, or '^' and a whole one: an alternative that has one is taken before the
                             * first. '|' between */
    const char
        *fields;      /* members of config.json that the file does not say (hf_writer.h), without braces; NULL: none */
    int  experts;     /* 1: only with experts; -1: only without; 0: either */
    int  window;      /* the same for a sliding window */
    const char *root; /* what stands in the place of "model.", or "a>b": b in the place of a; NULL: nothing does */
    const char
        *with; /* a key with a positive value, or the end of a tensor name, that the file must have; NULL: none */
} hf_family;

/* The row for a model that was read from a GGUF file; NULL: it cannot be written. */
const hf_family *hf_family_of(const nn_model *m);

/* The alternative of a list ("a|b") to write, with `prefix` before it; false: the list is empty. */
bool hf_family_choose(const hf_family *f, const char *list, const char *prefix, bind_name *out);

#endif
