/* SPDX-License-Identifier: Apache-2.0 */
/* What drafts beside a model, from the file that was named for it and from the model's own. */
#ifndef RUNTIME_DRAFT_H
#define RUNTIME_DRAFT_H

#include "engine/engine.h"

typedef struct draft_files {
    model_file *file;  /* the named one; NULL: none */
    nn_model   *model; /* it is a draft model; NULL: it is not */
    nn_next    *next;  /* a head for further tokens, from that file or the model's own; NULL: there is none */
} draft_files;

/* path: of the named file, or NULL. Opens what `who` may use; an error names the file. The files borrow the model, whose tape
 * may be extended: no executor of it may be open yet, and none may outlive the files. */
int  draft_files_open(draft_files *d, nn_model *m, const char *path, engine_speculate who, err *e);
void draft_files_close(draft_files *d); /* accepts zeros */

#endif
