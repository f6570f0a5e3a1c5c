/* SPDX-License-Identifier: Apache-2.0 */
/* hearth quantize, judged by the file it writes and by how well the result still predicts. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "formats/model_file.h"
#include "unit/support/model.h"
#include "unit/support/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double perplexity(const char *model, const char *documents) {
    str    arguments;
    char  *got;
    double value = NAN;
    str_init(&arguments);
    str_printf(&arguments, "perplexity '%s' '%s' --documents", model, documents);
    assert_int_equal(program_run("", str_cstr(&arguments), &got), 0);
    assert_int_equal(sscanf(got, "perplexity %lf", &value), 1);
    free(got);
    str_deinit(&arguments);
    return value;
}

static void test_types(void **state) {
    static const char *const types[] = { "q8_0", "Q2_K" };
    const char              *lines =
        "{\"text\": \"<|im_start|>user\\nWhat is the capital of France?<|im_end|>\\n<|im_start|>assistant"
        "\\n<think>\\n\\n</think>\\n\\nThe capital of France is Paris.<|im_end|>\\n\"}\n"
        "\"<|im_start|>user\\nHow many legs does a spider have?<|im_end|>\\n<|im_start|>assistant"
        "\\n<think>\\n\\n</think>\\n\\nA spider has eight legs.<|im_end|>\\n\"\n";
    char  *dir = test_temp_dir(), *documents = path_join(dir, "held.jsonl");
    double value[2];
    (void)state;
    test_write_file(documents, lines, strlen(lines));
    for (int i = 0; i < 2; i++) {
        char       *out = path_join(dir, types[i]);
        model_file *m;
        int64_t     number = 0;
        str         arguments;
        str_init(&arguments);
        str_printf(&arguments, "quantize '%s/models/demo/%s.gguf' '%s' %s", HEARTH_SOURCE_DIR,
                   i == 0 ? "demo" : "draft", out, types[i]); /* the small one for the slow type */
        program_prints("", str_cstr(&arguments), "");
        assert_int_equal(model_file_open(&m, out, NULL), 0);
        assert_int_equal(model_file_tensor(m, "blk.0.ffn_up.weight")->type, i == 0 ? TENSOR_Q8_0 : TENSOR_Q2_K);
        assert_int_equal(model_file_tensor(m, "blk.0.attn_norm.weight")->type, TENSOR_F32);
        assert_true(meta_int(model_file_meta(m, "general.file_type"), &number) && number == (i == 0 ? 7 : 10));
        assert_non_null(model_file_meta(m, "tokenizer.chat_template"));
        model_file_free(m);
        value[i] = perplexity(out, documents);
        str_deinit(&arguments);
        free(out);
    }
    /* Texts it knows by heart: a scale or a nibble in the wrong place would cost a factor of hundreds. */
    assert_true(value[0] > 1 && value[0] < 3 && value[1] > 1 && value[1] < 3);
    assert_true(value[0] < value[1] || value[0] > value[1]);
    free(documents);
    test_temp_dir_remove(dir);
}

static void test_refuses(void **state) {
    (void)state;
    program_fails("quantize demo /nowhere/x.gguf Q8_0", 1, "/nowhere");
    program_fails("quantize demo x.gguf Q9", 2, "'Q9' is not a type");
    program_fails("quantize demo x.gguf IQ1_S", 1, "needs an importance matrix");
    program_fails("quantize demo x.gguf MLX_AFF4", 2, "");
    program_fails("quantize /nowhere/model x.gguf Q4_K", 1, "/nowhere/model");
    program_fails("perplexity demo /dev/null --documents", 1, "does not contain a document");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
