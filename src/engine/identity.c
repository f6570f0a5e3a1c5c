/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/identity.h"

#include "base/sha256.h"
#include "base/str.h"
#include "formats/identity.h"

#include <string.h>

int identity_of(const nn_exec *x, kv_key *out, err *e) {
    const nn_tape *tape = x->model->tape;
    uint8_t        digest[SHA256_BYTES];
    sha256         s;
    str            text;
    str_init(&text);
    nn_tape_print(tape, &text);
    if (!str_ok(&text)) {
        str_deinit(&text);
        return err_set_nomem(e);
    }
    sha256_init(&s);
    sha256_feed(&s, &x->arithmetic, sizeof x->arithmetic);
    sha256_feed(&s, x->backend->name, strlen(x->backend->name) + 1);
    sha256_feed(&s, str_cstr(&text), text.len);
    str_deinit(&text);
    for (int i = 0; i < tape->n_ops; i++) {
        const nn_rope *r = &tape->ops[i].u.rope.rope;
        if (tape->ops[i].kind == NN_OP_ROPE && r->n_rot > 0)
            sha256_feed(&s, r->inv_freq, (size_t)(r->n_rot / 2) * sizeof *r->inv_freq);
    }
    for (int i = 0; i < x->model->dims->n_layer; i++) {
        nn_kv_type types[2];
        nn_exec_kv_types(&x->options, x->model, i, &types[0], &types[1]);
        uint32_t numbers[2] = { (uint32_t)types[0], (uint32_t)types[1] };
        sha256_feed(&s, numbers, sizeof numbers);
    }
    int rc = model_file_identify(x->model->file, &s, e);
    sha256_finish(&s, digest);
    memcpy(out->b, digest, sizeof out->b);
    return rc;
}
