/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of what writes config.json: members, each once. */
#ifndef CONVERT_HF_WRITER_H
#define CONVERT_HF_WRITER_H

#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"
#include "convert/families.h"
#include "nn/config.h"

typedef struct hf_writer {
    const nn_model  *m;
    const hf_family *f;
    arena           *mem;
    str              out;
    map              said;
} hf_writer;

/* A value that the model's file had, or that follows from it; NULL: none. */
const nn_config_note *hf_note(const nn_model *m, const char *key);

/* Begins a member; false: it is there already. */
bool hf_begin(hf_writer *w, const char *name);

void hf_put_text(str *s, const char *text);
void hf_put_float(str *s, double x); /* the shortest text that is this number in single precision */

/*
 * The members of the family's row. Those that follow from the file, before all others, as texts of these kinds:
 *
 *   "=A"  "=A/B"  "=A-B"  "=A*B"   numbers: values of keys without the architecture (of a list: the largest; "<A": the least), or digits
 *   "?A:x,y"                       x where A is positive or is the end of a tensor's name, else y; as JSON
 *   "@A:x,y"                       a list of texts: x for layers whose A is positive or that have a tensor A, else y
 *   "&A:x,B:y"                     a text of one letter for each layer: x where it has a tensor A, y where B
 *   "~A"  "~A+"                    of layers with a regular distance: the distance; the number of the first one
 *   "#A"  "#!A"                    a list of the numbers, from one on, of layers that have A; of the others
 *   "!"                            left out, whatever the file says
 *
 * also inside of an object; and, after them, the plain ones where nothing else said them.
 */
int hf_say_fields(hf_writer *w, bool derived, err *e);

#endif
