/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer of a Hugging Face directory as the keys of a GGUF file (tokenizer.ggml.*).
 *
 * Texts and classes of the tokens come from the opened tokenizer, merges and scores from tokenizer.json
 * or tokenizer.model. GGUF names the
 * rule that cuts a text into words instead of holding it: the name is found by trying which known one gives the same
 * tokens for a text of many scripts. Where none does the conversion is refused: a file that silently tokenizes
 * differently is worse than none.
 */
#ifndef CONVERT_VOCAB_H
#define CONVERT_VOCAB_H

#include "convert/gguf_writer.h"
#include "formats/model_file.h"
#include "tokenizer/tokenizer.h"

/* n_vocab: rows of the model's embedding; ids without a text become "[PAD<id>]". */
int vocab_keys(gguf_writer *w, const model_file *m, const tok *t, int64_t n_vocab, err *e);

/* Whether two tokenizers give the same tokens for that text. */
bool vocab_same(const tok *a, const tok *b);

/* The chat template beside the model; nothing is set where there is none. */
int vocab_template(gguf_writer *w, const model_file *m, err *e);

#endif
