/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For work that goes through a model's weights once: memory of what was read is given back, so that it does not grow with
 * the file. Weights can be read again, at the cost of reading them again; those that were made while the file was opened
 * (packed checkpoints) stay. Not for a file whose weights were moved (model_file_settle).
 */
#ifndef FORMATS_FORGET_H
#define FORMATS_FORGET_H

#include "formats/model_file.h"

void model_file_forget(const model_file *m);

#endif
