/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures and sounds that go with a prompt: --image, --audio. */
#ifndef CLI_RUN_PICTURES_H
#define CLI_RUN_PICTURES_H

#include "base/err.h"
#include "base/str.h"

/* The file's picture or sound as the runtime takes it (runtime_request.blobs), decoded in a process of its own; to be freed. */
int picture_read(const char *path, view *out, err *e);
int sound_file_read(const char *path, view *out, err *e);

#endif
