/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures that go with a prompt: --image. */
#ifndef CLI_RUN_PICTURES_H
#define CLI_RUN_PICTURES_H

#include "base/err.h"
#include "base/str.h"

/* The file's picture as the runtime takes it (pixels_view), decoded in a process of its own; to be freed. */
int picture_read(const char *path, view *out, err *e);

#endif
