/* SPDX-License-Identifier: Apache-2.0 */
/* How fast experts can be read from a model's files: many pieces at once, past the page cache (base/file_reader.h). */
#ifndef CLI_MODELS_DISK_SPEED_H
#define CLI_MODELS_DISK_SPEED_H

#include "formats/model_file.h"

/* Bytes a second over at most two seconds or the whole of the largest file. */
int disk_speed_measure(const model_file *f, double *out, err *e);

#endif
