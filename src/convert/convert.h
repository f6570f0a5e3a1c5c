/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as one GGUF file that every reader of that format opens: hyper-parameters and tensors under their published
 * names (convert/export.h), tokenizer and chat template (convert/vocab.h), types by a mix or as they are.
 */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H

#include "convert/export.h"
#include "convert/quantize.h"
#include "tokenizer/tokenizer.h"

typedef struct convert_options {
    const mix     *mix; /* NULL: types stay; those that GGUF does not have become BF16 or F16 */
    const imatrix *importance;
    bool           pure;
    const tok     *tokenizer; /* NULL: none is written */
    const char    *name;      /* general.name; NULL: the path's last part */
    plan_options   write;
} convert_options;

int convert_gguf(const nn_model *m, const convert_options *o, pool *p, quantize_result *out, err *e);

#endif
