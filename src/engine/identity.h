/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who computed a page: everything that the bits of keys, values and states depend on, as one key.
 *
 * That is the op list with its constants, the hyper-parameters as written in the file, the rotary frequencies in use,
 * names, types and shapes of all tensors with a sample of each one's bytes (hashing gigabytes would cost more than a
 * prompt), size and time of the files, the types of every layer's pages, the backend, and its own number for what may change a bit (nn_exec.arithmetic).
 */
#ifndef ENGINE_IDENTITY_H
#define ENGINE_IDENTITY_H

#include "kv/entry.h"
#include "nn/backend.h"

int identity_of(const nn_exec *x, kv_key *out, err *e);

#endif
