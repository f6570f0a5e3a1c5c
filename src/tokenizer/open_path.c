/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/internal.h"
int tok_open_path(tok **out, const char *path, const tok_options *o, err *e) {
    (void)o;
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED, "%s: only GGUF vocabularies can be opened", path);
}
