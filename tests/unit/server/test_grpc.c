/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of Protocol Buffers: the tables say what proto/ says, byte for byte as protoc describes it; messages that
 * protoc wrote are read, and protoc reads what is written; whatever else comes in is refused or skipped.
 */
#include "params/sampling_table.h"
#include "server/grpc/grpc.h"
#include "server/http/json_in.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a command prints; false: it failed. */
static bool run(const char *command, const str *in, str *out) {
    char  path[] = "/tmp/hearth-grpc-XXXXXX", whole[1024], piece[4096];
    int   fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    if (in) fwrite(str_cstr(in), 1, in->len, f);
    fclose(f);
    snprintf(whole, sizeof whole, "%s < %s", command, path);
    f = popen(whole, "r");
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0) str_append(out, piece, n);
    int rc = pclose(f);
    unlink(path);
    return rc == 0;
}

static bool has_protoc(void) {
    str  out;
    bool ok;
    str_init(&out);
    ok = run("protoc --version 2>/dev/null", NULL, &out);
    str_deinit(&out);
    if (!ok) printf("skipped: there is no protoc\n");
    return ok;
}

#define PROTOC "protoc -I " HEARTH_SOURCE_DIR "/proto -I " HEARTH_SOURCE_DIR "/tests/api/proto "

static void test_descriptors(void **state) {
    int n = 0;
    (void)state;
    if (!has_protoc()) return;
    for (const grpc_file *const *f = grpc_files; *f; f++) {
        char      command[512];
        str       set, ours;
        pb_item   it;
        pb_reader r;
        if (!(*f)->path) continue; /* reflection itself */
        snprintf(command, sizeof command, PROTOC "--descriptor_set_out=/dev/stdout %s", (*f)->path);
        str_init(&set);
        str_init(&ours);
        assert_true(run(command, NULL, &set));
        reflect_file(*f, &ours);
        r = pb_reader_of((view){ set.data, set.len });
        assert_true(pb_next(&r, &it));
        if (it.bytes.len != ours.len || memcmp(it.bytes.data, ours.data, ours.len) != 0)
            fail_msg("the tables differ from %s", (*f)->path);
        str_deinit(&set);
        str_deinit(&ours);
        n++;
    }
    assert_int_equal(n, 4);
}

/* All of the parameters of sampling, by the names that every protocol has. */
static void test_sampling(void **state) {
    const pb_message *m = NULL;
    (void)state;
    for (const pb_field *f = pb_chat_request.fields; f->number; f++) {
        if (strcmp(f->name, "sampling") == 0) m = f->message;
    }
    assert_non_null(m);
    for (int p = 0; p < SAMPLING_PARAM_COUNT; p++) {
        const char     *name = sampling_param_name((sampling_param)p, SAMPLING_BY_OPENAI, 0);
        const pb_field *f = m->fields;
        while (f->number && strcmp(f->name, name) != 0) f++;
        if (!f->number) fail_msg("Sampling has no field %s", name);
        assert_true(f->flags & PB_OPTIONAL);
    }
}

static void read_message(const pb_message *m, view bytes, const char *expected) {
    json_doc d = { NULL };
    err      e = { 0 };
    str      text;
    str_init(&text);
    if (pb_read(m, bytes, &d.root, &e) < 0) fail_msg("%s", e.msg);
    node root = node_root(&d);
    node_write(&root, &text);
    assert_string_equal(str_cstr(&text), expected);
    json_doc_deinit(&d);
    str_deinit(&text);
}

static void encode(const char *type, const char *text, str *out) {
    char command[512];
    str  in;
    str_init(&in);
    str_init(out);
    str_puts(&in, text);
    snprintf(command, sizeof command,
             PROTOC "--encode=%s hearth/v1/inference.proto hearth/v1/text.proto hearth/v1/models.proto", type);
    assert_true(run(command, &in, out));
    str_deinit(&in);
}

static void test_reading(void **state) {
    static const struct {
        const char       *type;
        const pb_message *m;
        const char       *text, *json;
    } rows[] = {
        { "hearth.v1.ChatRequest", &pb_chat_request,
          "model: 'm' messages { role: 'user' content: 'gr\\303\\274n' } max_tokens: -1 sampling { temperature: 0 "
          "seed: -5 "
          "logit_bias { key: 7 value: -2.5 } } stop: 'a' stop: 'b'",
          "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"gr\303\274n\"}],\"temperature\":0.0,"
          "\"seed\":-5,"
          "\"logit_bias\":{\"7\":-2.5},\"max_tokens\":-1,\"stop\":[\"a\",\"b\"]}" },
        { "hearth.v1.ChatRequest", &pb_chat_request,
          "tools { name: 'f' parameters: '{\"type\": \"object\"}' } tool_name: 'f' constraint { json_object: true }",
          "{\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}},\"type\":\"function\"}],"
          "\"tool_choice\":{\"function\":{\"name\":\"f\"},\"type\":\"function\"},"
          "\"response_format\":{\"type\":\"json_object\"}}" },
        { "hearth.v1.ChatRequest", &pb_chat_request,
          "messages { role: 'user' parts { text: 'a' } parts { image: 'xyz' } parts { wav: 'q' } } constraint { choice "
          "{ "
          "texts: 'yes' } } prediction: 'p'",
          "{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"a\",\"type\":\"text\"},"
          "{\"image_url\":{\"url\":\"data:image/*;base64,eHl6\"},\"type\":\"image_url\"},"
          "{\"input_audio\":{\"data\":\"cQ==\",\"format\":\"wav\"},\"type\":\"input_audio\"}]}],"
          "\"guided_choice\":[\"yes\"],\"prediction\":{\"content\":\"p\",\"type\":\"content\"}}" },
        { "hearth.v1.CompleteRequest", &pb_complete_request,
          "prompt: 'a' prompt_tokens { ids: [1, 2, 300] } top_logprobs: 0",
          "{\"prompt\":[\"a\",[1,2,300]],\"logprobs\":0}" },
        { "hearth.v1.TokenizeRequest", &pb_tokenize_request, "", "{\"content\":\"\"}" },
        { "hearth.v1.DetokenizeRequest", &pb_detokenize_request, "keep_special: false",
          "{\"keep_special\":false,\"tokens\":[]}" },
    };
    (void)state;
    if (!has_protoc()) return;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        str bytes;
        encode(rows[i].type, rows[i].text, &bytes);
        read_message(rows[i].m, (view){ str_cstr(&bytes), bytes.len }, rows[i].json);
        /* Cut off anywhere it is refused, or another message: never more. */
        for (size_t n = 0; n < bytes.len; n++) {
            char    *copy = malloc(n + 1);
            json_doc d = { NULL };
            err      e = { 0 };
            memcpy(copy, bytes.data, n);
            if (pb_read(rows[i].m, (view){ copy, n }, &d.root, &e) < 0) assert_true(e.msg[0]);
            json_doc_deinit(&d);
            free(copy);
        }
        str_deinit(&bytes);
    }
}

static void test_writing(void **state) {
    static const char json[] =
        "{\"data\":[{\"id\":\"m\",\"created\":5,\"status\":\"loaded\",\"more\":1,\"input_modalities\":"
        "[\"text\",\"image\"],\"meta\":{\"n_ctx\":4096,\"size\":5000000000}},{\"id\":\"n\"}]}";
    static const char expected[] =
        "models {\n  id: \"m\"\n  created: 5\n  status: \"loaded\"\n  input_modalities: \"text\"\n"
        "  input_modalities: \"image\"\n  size_bytes: 5000000000\n  n_ctx: 4096\n}\nmodels {\n"
        "  id: \"n\"\n}\n";
    json_doc d;
    err      e = { 0 };
    str      bytes, text;
    (void)state;
    if (!has_protoc()) return;
    str_init(&bytes);
    str_init(&text);
    assert_int_equal(json_doc_parse(&d, json, sizeof json - 1, &e), 0);
    assert_int_equal(pb_write(&pb_list_models_answer, d.root, &bytes, &e), 0);
    assert_true(run(PROTOC "--decode=hearth.v1.ListModelsAnswer hearth/v1/models.proto", &bytes, &text));
    assert_string_equal(str_cstr(&text), expected);
    json_doc_deinit(&d);
    /* What does not fit its field is not sent as something else. */
    assert_int_equal(json_doc_parse(&d, "{\"data\":[{\"id\":5}]}", 19, &e), 0);
    assert_true(pb_write(&pb_list_models_answer, d.root, &bytes, &e) < 0);
    json_doc_deinit(&d);
    str_deinit(&bytes);
    str_deinit(&text);
}

/* A message inside of a longer one moves when its length needs more bytes. */
static void test_lengths(void **state) {
    static const size_t sizes[] = { 0, 1, 127, 128, 129, 16383, 16384, 2097152 };
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        str       out;
        pb_item   it;
        pb_reader r;
        str_init(&out);
        pb_put_int(&out, 1, 150);
        size_t at = pb_open(&out, 2);
        for (size_t k = 0; k < sizes[i]; k++) str_push(&out, (char)k);
        pb_close(&out, at);
        pb_put_double(&out, 3, 1.5);
        assert_true(str_ok(&out));
        r = pb_reader_of((view){ out.data, out.len });
        assert_true(pb_next(&r, &it) && it.number == 1 && it.value == 150);
        assert_true(pb_next(&r, &it) && it.number == 2 && it.bytes.len == sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal((unsigned char)it.bytes.data[k], k & 0xff);
        assert_true(pb_next(&r, &it) && it.number == 3 && it.wire == PB_FIXED64);
        assert_false(pb_next(&r, &it));
        assert_false(r.failed);
        str_deinit(&out);
    }
}

static void refuse(const pb_message *m, const char *bytes, size_t n, const char *words) {
    json_doc d = { NULL };
    err      e = { 0 };
    if (pb_read(m, (view){ bytes, n }, &d.root, &e) == 0) fail_msg("it was read; expected: %s", words);
    assert_null(d.root);
    if (!strstr(e.msg, words)) fail_msg("'%s' does not say '%s'", e.msg, words);
}

#define BYTES(text) text, sizeof(text) - 1

static void test_hostile(void **state) {
    str deep, many;
    (void)state;
    refuse(&pb_chat_request,
           BYTES("\x0a\x05"
                 "ab"),
           "not a message"); /* longer than there is */
    refuse(&pb_chat_request, BYTES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "not a message");
    refuse(&pb_chat_request, BYTES("\x0a"), "not a message");
    refuse(&pb_chat_request, BYTES("\x00\x01"), "not a message"); /* field 0 */
    refuse(&pb_chat_request, BYTES("\x0e"), "not a message");     /* wire type 6 */
    refuse(&pb_chat_request, BYTES("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), "not a message");
    refuse(&pb_chat_request, BYTES("\x0c"), "not a message");                      /* a group's end alone */
    refuse(&pb_chat_request, BYTES("\xa3\x06\x0a\x01x\xac\x06"), "not a message"); /* ends another group */
    refuse(&pb_chat_request, BYTES("\x0a\x02\xc3("), "ChatRequest.model: is not valid UTF-8");
    refuse(&pb_chat_request, BYTES("\x0a\x03\xed\xa0\x80"), "is not valid UTF-8"); /* a surrogate */
    refuse(&pb_chat_request, BYTES("\x3a\x09\x09\0\0\0\0\0\0\xf8\x7f"), "Sampling.temperature: is not a finite number");
    refuse(&pb_chat_request, BYTES("\x42\x03\x0a\x01{"), "Constraint.json_schema: is not valid JSON");
    refuse(&pb_chat_request,
           BYTES("\x12\x07\x12\x01"
                 "a\x1a\x02\x0a\0"),
           "Message.parts: cannot be used together");
    /* Unknown fields, groups among them, and fields of another wire type are skipped. */
    read_message(&pb_chat_request, (view){ BYTES("\xa3\x06\x0a\x01x\xa4\x06\xf8\x3f\x05\x08\x07\x0a\x01m") },
                 "{\"model\":\"m\"}");
    /* The last of a group counts; a message that comes twice adds up. */
    read_message(&pb_chat_request,
                 (view){ BYTES("\x22\x04"
                               "auto\x2a\x01"
                               "f\x22\x04none") },
                 "{\"tool_choice\":\"none\"}");
    read_message(&pb_chat_request, (view){ BYTES("\x3a\x02\x10\x05\x3a\x02\x40\x06") },
                 "{\"top_k\":5,\"repeat_last_n\":6}");
    /* Groups in groups. */
    str_init(&deep);
    for (int i = 0; i < 1000; i++) str_append(&deep, "\xa3\x06", 2);
    refuse(&pb_chat_request, deep.data, deep.len, "not a message");
    str_deinit(&deep);
    /* More values than anybody may send. */
    str_init(&many);
    size_t at = pb_open(&many, 2);
    for (int i = 0; i <= JSON_IN_MAX_VALUES; i++) str_push(&many, 1);
    pb_close(&many, at);
    refuse(&pb_detokenize_request, many.data, many.len, "more than");
    str_deinit(&many);
}

static void test_frames(void **state) {
    view    body, message;
    err     e = { 0 };
    int64_t us;
    (void)state;
    body = (view){ BYTES("\0\0\0\0\2ab\0\0\0\0\0\0\0") };
    assert_true(grpc_next(&body, &message, &e) && message.len == 2 && message.data[0] == 'a');
    assert_true(grpc_next(&body, &message, &e) && message.len == 0);
    assert_false(grpc_next(&body, &message, &e));
    assert_int_equal(e.code, 0);
    body = (view){ BYTES("\0\xff\xff\xff\xff"
                         "abc") };
    assert_false(grpc_next(&body, &message, &e));
    assert_int_equal(e.code, 0);
    body = (view){ BYTES("\1\0\0\0\0") };
    assert_false(grpc_next(&body, &message, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    body = (view){ BYTES("\2\0\0\0\0") };
    assert_false(grpc_next(&body, &message, &e));
    assert_int_equal(e.code, ERR_FORMAT);

    assert_true(grpc_timeout(view_of("1H"), &us) && us == 3600000000);
    assert_true(grpc_timeout(view_of("250m"), &us) && us == 250000);
    assert_true(grpc_timeout(view_of("99999999H"), &us) && us > 0);
    assert_true(grpc_timeout(view_of("0n"), &us) && us == 0);
    static const char *const wrong[] = { "", "S", "5", "-1S", "1.5S", "123456789S", "5x", " 5S" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) assert_false(grpc_timeout(view_of(wrong[i]), &us));
    assert_non_null(grpc_find(view_of("/hearth.v1.Inference/Chat")));
    assert_null(grpc_find(view_of("/hearth.v1.Inference/chat")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors), cmocka_unit_test(test_sampling), cmocka_unit_test(test_reading),
        cmocka_unit_test(test_writing),     cmocka_unit_test(test_lengths),  cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_frames),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
