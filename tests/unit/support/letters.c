/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/letters.h"

#include "base/file.h"
#include "base/str.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB = 160, FIRST_WORD = 150, LAST_LETTER = 95 };

char *letters_model(const char *golden, const char *const *files, size_t n) {
    char *dir = test_temp_dir();
    for (size_t i = 0; i < n; i++) {
        char *from = path_join(golden, files[i]), *to = path_join(dir, files[i]);
        assert_int_equal(symlink(from, to), 0);
        free(from);
        free(to);
    }
    return dir;
}

void letters_put(const char *dir, const char *name, const char *text, size_t n) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static const char *special(const char *const *words, size_t n, int id) {
    if (id == 0) return "<eos>";
    return id >= FIRST_WORD && (size_t)(id - FIRST_WORD) < n ? words[id - FIRST_WORD] : NULL;
}

void letters_tokenizer(const char *dir, const char *const *words, size_t n_words, const char *chat_template) {
    str s;
    str_init(&s);
    str_puts(&s, "{\"version\":\"1.0\",\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,"
                 "\"decoder\":{\"type\":\"Fuse\"},\"added_tokens\":[");
    for (int i = 0, n = 0; i < VOCAB; i++) {
        const char *word = special(words, n_words, i);
        if (word) str_printf(&s, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true}", n++ ? "," : "", i, word);
    }
    str_puts(&s, "],\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < VOCAB; i++) {
        const char *word = special(words, n_words, i);
        char        letter[2] = { (char)(i + 31), 0 };
        str_puts(&s, i ? "," : "");
        if (word)
            str_put_json(&s, word, strlen(word));
        else if (i <= LAST_LETTER)
            str_put_json(&s, letter, 1);
        else
            str_printf(&s, "\"<unused%d>\"", i);
        str_printf(&s, ":%d", i);
    }
    str_puts(&s, "}}}");
    letters_put(dir, "tokenizer.json", str_cstr(&s), s.len);
    str_clear(&s);
    str_puts(&s, "{\"eos_token\":\"<eos>\",\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"chat_template\":");
    str_put_json(&s, chat_template, strlen(chat_template));
    str_puts(&s, "}");
    letters_put(dir, "tokenizer_config.json", str_cstr(&s), s.len);
    str_deinit(&s);
}
