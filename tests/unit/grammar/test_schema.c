/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema compiler, keyword by keyword: what the JSON Schema specification says about small schemas, checked with a
 * plain recognizer of the rules they compile to (support/ir_walk.h).
 */
#include "base/json.h"
#include "grammar/schema/schema.h"
#include "unit/support/ir_walk.h"
#include "unit/support/support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct schema_case {
    const char *schema;
    const char *valid[16];
    const char *invalid[16];
} schema_case;

static void check_case(const schema_case *k) {
    ir    *g;
    ir_sym start;
    err    e = { 0 };
    assert_int_equal(ir_open(&g, &e), 0);
    if (schema_compile(g, view_of(k->schema), &start, &e) < 0) fail_msg("%s: %s", k->schema, e.msg);
    for (int i = 0; i < 16 && k->valid[i]; i++) {
        size_t stop = 0;
        if (!ir_walk(g, start, k->valid[i], strlen(k->valid[i]), &stop))
            fail_msg("%s: rejects %s at %zu", k->schema, k->valid[i], stop);
    }
    for (int i = 0; i < 16 && k->invalid[i]; i++) {
        if (ir_walk(g, start, k->invalid[i], strlen(k->invalid[i]), NULL))
            fail_msg("%s: accepts %s", k->schema, k->invalid[i]);
    }
    assert_int_equal(ir_error(g, &e), 0);
    ir_free(g);
}

#define CHECK(cases)                                                                                                   \
    for (size_t i_ = 0; i_ < sizeof(cases) / sizeof *(cases); i_++) check_case(&(cases)[i_])

static void types(void **state) {
    static const schema_case cases[] = {
        { "true", { "1", "null", "{\"a\": [1, \"x\", {}]}", "[]", "\"\"" }, { "", "{", "[1,]", "01", "'a'", "nul" } },
        { "{}", { "-0.5e+10", "[[], {}]" }, { "+1", ".5", "1." } },
        { "{\"type\": \"null\"}", { "null" }, { "0", "\"null\"" } },
        { "{\"type\": \"boolean\"}", { "true", "false" }, { "0", "\"true\"" } },
        { "{\"type\": \"integer\"}", { "0", "-12", "7.0", "123456789012345" }, { "1.5", "\"1\"", "007", "true" } },
        { "{\"$schema\": \"http://json-schema.org/draft-04/schema#\", \"type\": \"integer\"}", { "7" }, { "7.0" } },
        { "{\"type\": \"number\"}",
          { "0", "-1.25", "1e-05", "1.5E+16", "0.30000000000000004" },
          { "1e999", "NaN", "--1" } },
        { "{\"type\": \"string\"}",
          { "\"\"", "\"\\u00e4\\n\\/\"", "\"\\ud83d\\ude00\"", "\"\xc3\xa4\xf0\x9f\x98\x80\"" },
          { "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"a", "1" } },
        { "{\"type\": [\"string\", \"null\"]}", { "\"a\"", "null" }, { "1", "[]" } },
        { "{\"type\": \"array\"}", { "[]", "[ ]", "[1, [2]]" }, { "{}", "[1 2]" } },
        { "{\"type\": \"object\"}", { "{}", "{\"a\":1,\"b\":{}}" }, { "[]", "{a:1}", "{\"a\"}", "{\"a\":1,}" } },
        { "{\"not\": {\"type\": \"integer\"}}", { "1.5", "\"a\"", "{}" }, { "1", "1.0", "-3" } },
    };
    (void)state;
    CHECK(cases);
}

static void white_space(void **state) {
    static const schema_case cases[] = {
        { "{\"properties\": {\"a\": {\"items\": {\"type\": \"integer\"}}, \"b\": {}}, \"type\": \"object\"}",
          { "{\"a\": [1, 2], \"b\": 3}", "{\"a\":[1,2],\"b\":3}", "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": 3\n}",
            "{\r\n\t\"a\": [1]\r\n}" },
          { "{   \"a\": [1]}", "{\"a\" : [1]}", "{\n\n\"a\":[1]}" } },
    };
    (void)state;
    CHECK(cases);
}

static void values(void **state) {
    static const schema_case cases[] = {
        { "{\"enum\": [\"a\", \"a\\\"b\", 1, 2.5, null, true, [1, {\"x\": []}]]}",
          { "\"a\"", "\"\\u0061\"", "\"a\\\"b\"", "1", "1.0", "2.5", "2.50", "null", "true", "[1, {\"x\": []}]",
            "[1,{\"x\":[]}]" },
          { "\"b\"", "2", "false", "[1]", "[]", "10" } },
        { "{\"const\": {\"k\": \"\xc3\xa9\"}}",
          { "{\"k\": \"\xc3\xa9\"}", "{\"k\":\"\\u00E9\"}" },
          { "{}", "{\"k\": \"e\"}" } },
        { "{\"type\": \"string\", \"enum\": [1, \"x\"]}", { "\"x\"" }, { "1" } },
        { "{\"enum\": [1, 5, 9], \"minimum\": 3}", { "5", "9" }, { "1" } },
        { "{\"enum\": [\"aa\", \"b\"], \"maxLength\": 1}", { "\"b\"" }, { "\"aa\"" } },
        { "{\"not\": {\"enum\": [\"a\", 1, null]}}",
          { "\"b\"", "2", "false", "[]" },
          { "\"a\"", "\"\\u0061\"", "1", "1.0", "null" } },
        { "{\"not\": {\"const\": true}, \"type\": \"boolean\"}", { "false" }, { "true" } },
        { "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"not\": {\"const\": [1, 2]}}",
          { "[]", "[1]", "[1, 3]", "[2, 2]", "[1, 2, 3]" },
          { "[1, 2]", "[1,2.0]" } },
        { "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, \"additionalProperties\": false, "
          "\"not\": {\"const\": {\"a\": 1}}}",
          { "{}", "{\"a\": 2}" },
          { "{\"a\": 1}" } },
    };
    (void)state;
    CHECK(cases);
}

static void strings(void **state) {
    static const schema_case cases[] = {
        { "{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
          { "\"ab\"", "\"abc\"", "\"\xc3\xa4\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\\n\"" },
          { "\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\"" } },
        { "{\"type\": \"string\", \"pattern\": \"b+\"}", { "\"abc\"", "\"b\"" }, { "\"ac\"", "\"\"" } },
        { "{\"type\": \"string\", \"pattern\": \"^a.c$\", \"maxLength\": 3}",
          { "\"abc\"" },
          { "\"xabc\"", "\"abcd\"" } },
        { "{\"type\": \"string\", \"pattern\": \"^[a-z]+$\", \"minLength\": 3, \"not\": {\"pattern\": \"^x\"}}",
          { "\"abc\"" },
          { "\"ab\"", "\"xyz\"", "\"ABC\"" } },
        { "{\"type\": \"string\", \"pattern\": \"^(/?([a-z]+|\\\\.{2})($|/))+$\"}",
          { "\"a\"", "\"/a/b\"", "\"a/../b/\"", "\"..\"" },
          { "\"\"", "\"a//\"", "\"...\"", "\"a/B\"" } },
        { "{\"minLength\": 2}", { "1", "[]", "\"ab\"" }, { "\"a\"" } },
        { "{\"allOf\": [{\"pattern\": \"a\"}, {\"pattern\": \"b\"}], \"type\": \"string\"}",
          { "\"ba\"", "\"xaxb\"" },
          { "\"a\"", "\"b\"" } },
        { "{\"type\": \"string\", \"maxLength\": 100000}", { "\"abc\"" }, { "1" } },
    };
    (void)state;
    CHECK(cases);
}

static void formats(void **state) {
    static const schema_case cases[] = {
        { "{\"format\": \"date\", \"type\": \"string\"}",
          { "\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"" },
          { "\"2023-02-29\"", "\"1900-02-29\"", "\"2020-01-32\"", "\"2022-04-31\"", "\"20-01-01\"",
            "\"2020-13-01\"" } },
        { "{\"format\": \"date-time\", \"type\": \"string\"}",
          { "\"2022-01-01T12:00:00Z\"", "\"2022-01-01T12:00:00.5+01:30\"", "\"2022-01-01t12:00:00z\"" },
          { "\"2022-01-01T12:00:00\"", "\"2022-01-01 12:00:00Z\"", "\"2022-01-01T24:00:00Z\"" } },
        { "{\"format\": \"time\", \"type\": \"string\"}",
          { "\"12:00:00Z\"", "\"01:02:03-08:00\"" },
          { "\"12:00:00\"", "\"1:00:00Z\"" } },
        { "{\"format\": \"email\", \"type\": \"string\"}",
          { "\"a@b.c\"", "\"joe.bloggs+x@example.co.uk\"" },
          { "\"a\"", "\"a@\"", "\".a@b\"", "\"a..b@c\"", "\"a@-b\"", "\"a b@c\"" } },
        { "{\"format\": \"uri\", \"type\": \"string\"}",
          { "\"https://example.com/a?b=c#d\"", "\"urn:a:b\"", "\"file:///C:/x\"", "\"http://[::1]:80/\"",
            "\"mailto:a@b\"", "\"http://u:p@h:1/%20\"" },
          { "\"not a uri\"", "\"/relative\"", "\"http://a b\"", "\"//x\"", "\"a:%zz\"", "\"abc\"" } },
        { "{\"format\": \"uri-reference\", \"type\": \"string\"}",
          { "\"#\"", "\"../a\"", "\"http://a\"", "\"\"" },
          { "\"a b\"", "\"\\\\\"" } },
        { "{\"format\": \"uuid\", \"type\": \"string\"}",
          { "\"123e4567-e89b-12d3-a456-426655440000\"" },
          { "\"123e4567e89b12d3a456426655440000\"" } },
        { "{\"format\": \"ipv4\", \"type\": \"string\"}",
          { "\"10.1.2.255\"" },
          { "\"256.1.1.1\"", "\"1.2.3\"", "\"01.2.3.4\"" } },
        { "{\"format\": \"ipv6\", \"type\": \"string\"}",
          { "\"::\"", "\"2001:db8::8a2e:370:7334\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"" },
          { "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7\"", "\":1\"" } },
        { "{\"format\": \"hostname\", \"type\": \"string\"}",
          { "\"a.b-c.example\"" },
          { "\"-a\"", "\"a..b\"", "\"a_b\"" } },
        { "{\"format\": \"json-pointer\", \"type\": \"string\"}", { "\"\"", "\"/a/b~1c\"" }, { "\"a\"", "\"/~2\"" } },
        { "{\"format\": \"duration\", \"type\": \"string\"}",
          { "\"P1DT2H\"", "\"PT1M30S\"", "\"P2W\"" },
          { "\"P\"", "\"1D\"", "\"P1DT\"" } },
        { "{\"format\": \"regex\", \"type\": \"string\"}",
          { "\"^a(b|c)*$\"", "\"[a-z]{2}\"", "\"^[a-fA-F0-9]{1,40}\\\\.[^\\\\s]+$\"", "\"(?:\\\\d{3}-)?\\\\u0041\"" },
          { "\"(\"", "\"[\"", "\"*\"", "\"[z-a]\"", "\"a{3,2}\"" } },
        { "{\"format\": \"uri-template\", \"type\": \"string\"}", { "\"/a/{b}{?c,d*}\"" }, { "\"/a/{b\"", "\"a b\"" } },
        { "{\"format\": \"colour of the day\", \"type\": \"string\"}", { "\"anything\"" }, { "1" } },
        { "{\"format\": \"date\", \"type\": [\"string\", \"null\"], \"pattern\": \"^2\"}",
          { "\"2024-01-01\"", "null" },
          { "\"1999-01-01\"" } },
    };
    (void)state;
    CHECK(cases);
}

static void numbers(void **state) {
    static const schema_case cases[] = {
        { "{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 120}",
          { "3", "9", "10", "99", "100", "120", "120.0" },
          { "2", "121", "-5", "1000", "3.5" } },
        { "{\"type\": \"integer\", \"minimum\": -15, \"exclusiveMaximum\": 7}",
          { "-15", "-9", "0", "6" },
          { "-16", "7", "-100" } },
        { "{\"type\": \"number\", \"minimum\": 0.5, \"maximum\": 1.25}",
          { "0.5", "0.50", "0.75", "1", "1.0", "1.25", "1.2" },
          { "0.4", "0.49", "1.26", "1.250001", "2", "0", "-1" } },
        { "{\"type\": \"number\", \"exclusiveMinimum\": 0, \"maximum\": 1}",
          { "0.001", "1", "1.0", "1e-05" },
          { "0", "0.0", "-0.0", "1.01", "1e+05" } },
        { "{\"type\": \"number\", \"minimum\": 0}", { "0", "1e-05", "2.5e+10", "123.5" }, { "-1", "-0.5", "-1e-05" } },
        { "{\"$schema\": \"http://json-schema.org/draft-04/schema#\", \"type\": \"integer\", \"minimum\": 1, "
          "\"exclusiveMinimum\": true}",
          { "2" },
          { "1" } },
        { "{\"minimum\": 10}", { "10", "\"a\"", "null" }, { "9" } },
        { "{\"type\": \"integer\", \"multipleOf\": 7}",
          { "0", "7", "-14", "700007", "21.0" },
          { "1", "8", "-15", "71" } },
        { "{\"type\": \"integer\", \"multipleOf\": 11, \"minimum\": 100, \"maximum\": 200}",
          { "110", "198" },
          { "99", "100", "209", "111" } },
        { "{\"type\": \"number\", \"multipleOf\": 0.01}",
          { "1", "1.5", "1.25", "0.01", "-3.10", "1.2500" },
          { "1.255", "0.001" } },
        { "{\"type\": \"number\", \"multipleOf\": 1.5}",
          { "0", "3", "1.5", "4.5", "3.0", "-1.50" },
          { "1", "2.5", "1.6" } },
        { "{\"type\": \"integer\", \"multipleOf\": 2.5}", { "5", "10", "-5" }, { "1", "2", "7" } },
        { "{\"type\": \"integer\", \"not\": {\"multipleOf\": 3}}",
          { "1", "2", "-4", "10" },
          { "0", "3", "9", "-6", "12.0" } },
        { "{\"type\": \"number\", \"not\": {\"minimum\": 5}}", { "4.99", "-10" }, { "5", "6.5" } },
        { "{\"type\": \"integer\", \"minimum\": 1.5, \"maximum\": 3.5}", { "2", "3" }, { "1", "4" } },
        { "{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 5}", { "5" }, { "4", "6", "55" } },
        { "{\"type\": \"number\", \"maximum\": -2.5}", { "-2.5", "-3", "-100.25" }, { "-2.4", "0", "3", "-2" } },
    };
    (void)state;
    CHECK(cases);
}

static void arrays(void **state) {
    static const schema_case cases[] = {
        { "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 3}",
          { "[1]", "[1, 2]", "[1,2,3]" },
          { "[]", "[1, 2, 3, 4]", "[\"a\"]" } },
        { "{\"type\": \"array\", \"prefixItems\": [{\"type\": \"string\"}, {\"type\": \"integer\"}], \"items\": false}",
          { "[]", "[\"a\"]", "[\"a\", 1]" },
          { "[1]", "[\"a\", 1, 2]", "[\"a\", \"b\"]" } },
        { "{\"$schema\": \"http://json-schema.org/draft-07/schema#\", \"type\": \"array\", \"items\": [{\"const\": "
          "1}], \"additionalItems\": {\"type\": \"null\"}, \"minItems\": 2}",
          { "[1, null]", "[1, null, null]" },
          { "[1]", "[2, null]", "[1, 1]" } },
        { "{\"type\": \"array\", \"contains\": {\"const\": 5}}",
          { "[5]", "[1, 5, 2]", "[\"x\", 5]" },
          { "[]", "[1]", "[55]" } },
        { "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"allOf\": [{\"contains\": {\"const\": 1}}, "
          "{\"contains\": {\"minimum\": 7}}], \"maxItems\": 3}",
          { "[1, 8]", "[9, 2, 1]" },
          { "[1]", "[8, 2]", "[1, 2, 3]", "[1, 2, 3, 8]" } },
        { "{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"enum\": [\"a\", \"b\", \"c\"]}, \"minItems\": 1}",
          { "[\"a\"]", "[\"c\", \"a\"]", "[\"b\", \"a\", \"c\"]" },
          { "[]", "[\"a\", \"a\"]", "[\"a\", \"b\", \"a\"]" } },
        { "{\"type\": \"array\", \"uniqueItems\": true, \"maxItems\": 1}", { "[]", "[{}]" }, { "[1, 1]", "[1, 2]" } },
        { "{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"uniqueItems\": true}",
          { "[]", "[true, false]" },
          { "[true, true]" } },
        { "{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"type\": \"integer\", \"minimum\": 1, "
          "\"maximum\": 49}, \"maxItems\": 2}",
          { "[]", "[49]", "[1, 49]", "[49, 1]" },
          { "[7, 7]", "[7, 7.0]", "[1, 2, 3]", "[50]", "[0]" } },
        { "{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"anyOf\": [{\"type\": \"integer\", "
          "\"exclusiveMinimum\": -1, \"maximum\": 20.5, \"multipleOf\": 5, \"not\": {\"const\": 10}}, {\"type\": "
          "\"null\"}]}, \"minItems\": 2}",
          { "[0, 5]", "[20, null, 15, 5, 0]" },
          { "[5]", "[10, 5]", "[25, 5]", "[5, null, 5]", "[-5, 5]" } },
        { "{\"type\": \"array\", \"not\": {\"items\": {\"type\": \"integer\"}}}",
          { "[\"a\"]", "[1, null, 2]" },
          { "[]", "[1, 2]" } },
        { "{\"type\": \"array\", \"not\": {\"contains\": {\"type\": \"null\"}}}",
          { "[]", "[1, \"a\"]" },
          { "[null]", "[1, null]" } },
        { "{\"type\": \"array\", \"items\": false}", { "[]" }, { "[1]" } },
        { "{\"items\": {\"items\": {\"items\": {\"type\": \"null\"}}}}", { "[[[null]]]", "7", "[1]" }, { "[[[1]]]" } },
        { "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"maxItems\": 1000000}",
          { "[1, 2]" },
          { "[null]" } },
    };
    (void)state;
    CHECK(cases);
}

static void objects(void **state) {
    static const schema_case cases[] = {
        { "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"string\"}}, "
          "\"required\": [\"a\"]}",
          { "{\"a\": 1}", "{\"a\": 1, \"b\": \"x\"}", "{\"b\": \"x\", \"a\": 1}", "{\"z\": null, \"a\": 1, \"y\": 2}",
            "{\"\\u0061\": 1}" },
          { "{}", "{\"b\": \"x\"}", "{\"a\": \"x\"}", "{\"a\": 1, \"b\": 2}", "{\"\\u0061\": \"x\"}",
            "{\"z\": 1, \"b\": 2, \"a\": 1}" } },
        { "{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}}, \"additionalProperties\": false}",
          { "{}", "{\"b\": 1}", "{\"b\": 1, \"a\": 2}" },
          { "{\"c\": 1}", "{\"a\": 1, \"c\": 1}" } },
        { "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}, \"properties\": {\"s\": "
          "{\"type\": \"string\"}}}",
          { "{\"s\": \"x\", \"n\": 1}", "{\"n\": 1, \"s\": \"x\", \"m\": 2}" },
          { "{\"s\": 1}", "{\"n\": \"x\"}" } },
        { "{\"type\": \"object\", \"patternProperties\": {\"^i_\": {\"type\": \"integer\"}, \"_s$\": {\"type\": "
          "\"string\"}}, \"additionalProperties\": false}",
          { "{\"i_a\": 1, \"b_s\": \"x\"}" },
          { "{\"i_a\": \"x\"}", "{\"i_s\": 1}", "{\"i_s\": \"x\"}", "{\"q\": 1}" } },
        { "{\"type\": \"object\", \"patternProperties\": {\"^a\": {\"minimum\": 1}, \"b$\": {\"maximum\": 5}}, "
          "\"properties\": {\"ab\": {\"type\": \"integer\"}}}",
          { "{\"ab\": 3}", "{\"axb\": 2.5}", "{\"q\": 99}" },
          { "{\"ab\": 0}", "{\"ab\": 6}", "{\"ab\": 2.5}", "{\"axb\": 7}" } },
        { "{\"type\": \"object\", \"propertyNames\": {\"pattern\": \"^[a-c]+$\"}, \"properties\": {\"zz\": {}}}",
          { "{}", "{\"abc\": 1}" },
          { "{\"d\": 1}", "{\"zz\": 1}" } },
        { "{\"type\": \"object\", \"propertyNames\": {\"enum\": [\"x\", \"y\"]}}",
          { "{\"x\": 1, \"y\": 2}" },
          { "{\"z\": 1}" } },
        { "{\"type\": \"object\", \"required\": [\"q\"]}",
          { "{\"q\": 1}", "{\"a\": 1, \"q\": []}" },
          { "{}", "{\"a\": 1}" } },
        { "{\"type\": \"object\", \"minProperties\": 1, \"maxProperties\": 2}",
          { "{\"a\": 1}", "{\"a\": 1, \"b\": 2}" },
          { "{}", "{\"a\": 1, \"b\": 2, \"c\": 3}" } },
        { "{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}, \"c\": {}}, \"additionalProperties\": false, "
          "\"minProperties\": 2}",
          { "{\"a\": 1, \"c\": 2}", "{\"c\": 1, \"b\": 2, \"a\": 3}" },
          { "{}", "{\"a\": 1}", "{\"a\": 1, \"a\": 2}" } },
        { "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"integer\"}, "
          "\"c\": {\"type\": \"integer\"}, \"d\": {\"type\": \"integer\"}, \"e\": {\"type\": \"integer\"}, \"f\": "
          "{\"type\": \"integer\"}, \"g\": {\"type\": \"integer\"}, \"h\": {\"type\": \"integer\"}, \"i\": {\"type\": "
          "\"integer\"}, \"j\": {\"type\": \"integer\"}}, \"additionalProperties\": false, \"minProperties\": 3}",
          { "{\"a\":1,\"c\":2,\"j\":3}", "{\"j\":1,\"c\":2,\"a\":3}", "{\"a\":1,\"b\":2,\"c\":3,\"d\":4}" },
          { "{}", "{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":1,\"a\":2,\"a\":3}",
            "{\"a\":1,\"b\":2,\"z\":3}" } },
        { "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"integer\"}, "
          "\"c\": {\"type\": \"integer\"}, \"d\": {\"type\": \"integer\"}, \"e\": {\"type\": \"integer\"}, \"f\": "
          "{\"type\": \"integer\"}, \"g\": {\"type\": \"integer\"}, \"h\": {\"type\": \"integer\"}, \"i\": {\"type\": "
          "\"integer\"}, \"j\": {\"type\": \"integer\"}}, \"additionalProperties\": false, \"required\": [\"c\"], "
          "\"minProperties\": 3, \"maxProperties\": 4}",
          { "{\"a\":1,\"c\":2,\"j\":3}", "{\"c\":1,\"b\":2,\"a\":3}", "{\"d\":1,\"b\":2,\"c\":3,\"a\":4}" },
          { "{\"c\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"d\":3}", "{\"c\":1,\"b\":2,\"b\":3}", "{\"b\":2,\"c\":1,\"b\":3}",
            "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5}" } },
        { "{\"type\": \"object\", \"propertyNames\": {\"enum\": [\"a\", \"b\", \"c\", 7]}, \"minProperties\": 2}",
          { "{\"a\":1,\"c\":{}}", "{\"c\":1,\"b\":2,\"a\":3}" },
          { "{\"a\":1}", "{\"a\":1,\"a\":2}", "{\"a\":1,\"d\":2}", "{}" } },
        { "{\"type\": \"object\", \"not\": {\"const\": {\"a\": 1, \"b\": 2}}}",
          { "{}", "{\"a\":1}", "{\"a\":1,\"b\":3}", "{\"x\":1,\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"c\":3}" },
          { "{\"a\":1,\"b\":2}", "{\"b\":2.0,\"a\":1}" } },
        { "{\"anyOf\": [{\"type\": \"null\"}, {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, "
          "\"b\": {\"type\": \"integer\"}, \"c\": {\"type\": \"integer\"}, \"d\": {\"type\": \"integer\"}, \"e\": "
          "{\"type\": \"integer\"}, \"f\": {\"type\": \"integer\"}, \"g\": {\"type\": \"integer\"}, \"h\": {\"type\": "
          "\"integer\"}, \"i\": {\"type\": \"integer\"}, \"j\": {\"type\": \"integer\"}}, \"additionalProperties\": "
          "false, \"minProperties\": 11}]}",
          { "null" },
          { "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1}" } },
        { "{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}}, \"dependentRequired\": {\"a\": [\"b\"]}}",
          { "{}", "{\"b\": 1}", "{\"a\": 1, \"b\": 2}", "{\"b\": 1, \"a\": 2}" },
          { "{\"a\": 1}" } },
        { "{\"$schema\": \"http://json-schema.org/draft-07/schema#\", \"type\": \"object\", \"dependencies\": {\"a\": "
          "{\"properties\": {\"b\": {\"type\": \"null\"}}, \"required\": [\"b\"]}}}",
          { "{\"b\": 1}", "{\"a\": 1, \"b\": null}" },
          { "{\"a\": 1}", "{\"a\": 1, \"b\": 2}" } },
        { "{\"type\": \"object\", \"properties\": {\"a\": false, \"b\": {}}}",
          { "{\"b\": 1}", "{}" },
          { "{\"a\": 1}" } },
        { "{\"type\": \"object\", \"properties\": {\"p1\": {}, \"p2\": {}, \"p3\": {}, \"p4\": {}, \"p5\": {}, \"p6\": "
          "{}, \"p7\": {}, \"p8\": {}}, \"required\": [\"p7\", \"p1\", \"p2\", \"p3\", \"p4\", \"p5\", \"p6\"], "
          "\"additionalProperties\": false}",
          { "{\"p1\":1,\"p2\":1,\"p3\":1,\"p4\":1,\"p5\":1,\"p6\":1,\"p7\":1}",
            "{\"p7\":1,\"p1\":1,\"p2\":1,\"p8\":2,\"p3\":1,\"p4\":1,\"p5\":1,\"p6\":1}" },
          { "{\"p1\":1,\"p2\":1,\"p3\":1,\"p4\":1,\"p5\":1,\"p6\":1}", "{}" } },
        { "{\"type\": \"object\", \"properties\": {\"p1\": {}, \"p2\": {}, \"p3\": {}, \"p4\": {}, \"p5\": {}, \"p6\": "
          "{}, \"p7\": {}, \"p8\": {}, \"p9\": {}, \"p10\": {}, \"p11\": {}, \"p12\": {}}, \"required\": [\"p1\", "
          "\"p2\", \"p3\", \"p4\", \"p5\", \"p6\", \"p7\", \"p8\", \"p9\", \"p10\", \"p11\", \"p12\"], "
          "\"additionalProperties\": false}",
          { "{\"p1\": 1, \"p2\": 1, \"p3\": 1, \"p4\": 1, \"p5\": 1, \"p6\": 1, \"p7\": 1, \"p8\": 1, \"p9\": 1, "
            "\"p10\": 1, \"p11\": 1, \"p12\": 1}",
            "{\"p5\": 1, \"p1\": 1, \"p2\": 1, \"p3\": 1, \"p4\": 1, \"p6\": 1, \"p7\": 1, \"p8\": 1, \"p9\": 1, "
            "\"p10\": 1, \"p11\": 1, \"p12\": 1}",
            "{\"p1\": 1, \"p3\": 1, \"p4\": 1, \"p5\": 1, \"p6\": 1, \"p7\": 1, \"p8\": 1, \"p9\": 1, \"p10\": 1, "
            "\"p11\": 1, \"p12\": 1, \"p2\": 1}",
            "{\"p3\": 1, \"p1\": 1, \"p2\": 1, \"p4\": 1, \"p5\": 1, \"p6\": 1, \"p12\": 1, \"p7\": 1, \"p8\": 1, "
            "\"p9\": 1, \"p10\": 1, \"p11\": 1}",
            "{\"p2\": 1, \"p1\": 1, \"p3\": 1, \"p4\": 1, \"p5\": 1, \"p6\": 1, \"p7\": 1, \"p8\": 1, \"p9\": 1, "
            "\"p10\": 1, \"p11\": 1, \"p12\": 1}" },
          { "{\"p2\": 1, \"p3\": 1, \"p4\": 1, \"p5\": 1, \"p6\": 1, \"p7\": 1, \"p8\": 1, \"p9\": 1, \"p10\": 1, "
            "\"p11\": 1, \"p12\": 1}",
            "{\"p1\": 1, \"p2\": 1, \"p3\": 1, \"p4\": 1, \"p5\": 1, \"p6\": 1, \"p7\": 1, \"p8\": 1, \"p9\": 1, "
            "\"p10\": 1, \"p11\": 1}",
            "{\"p5\": 1, \"p1\": 1, \"p2\": 1, \"p3\": 1, \"p4\": 1, \"p6\": 1, \"p7\": 1, \"p8\": 1, \"p9\": 1, "
            "\"p10\": 1, \"p11\": 1}",
            "{\"p1\": 1, \"p3\": 1, \"p4\": 1, \"p5\": 1, \"p6\": 1, \"p7\": 1, \"p8\": 1, \"p9\": 1, \"p10\": 1, "
            "\"p11\": 1, \"p12\": 1}" } },
        { "{\"type\": \"object\", \"not\": {\"required\": [\"a\", \"b\"]}}",
          { "{}", "{\"a\": 1}", "{\"b\": 1}" },
          { "{\"a\": 1, \"b\": 1}" } },
        { "{\"type\": \"object\", \"not\": {\"properties\": {\"a\": {\"type\": \"integer\"}}}}",
          { "{\"a\": \"x\"}" },
          { "{}", "{\"a\": 1}" } },
        { "{\"type\": \"object\", \"not\": {\"additionalProperties\": {\"type\": \"integer\"}, \"properties\": {\"a\": "
          "{}}}}",
          { "{\"b\": null}", "{\"a\": 1, \"c\": 1, \"b\": \"x\"}" },
          { "{}", "{\"a\": null}", "{\"b\": 1}" } },
        { "{\"type\": \"object\", \"unevaluatedProperties\": false, \"properties\": {\"a\": {}}}",
          { "{\"a\": 1}" },
          { "{\"b\": 1}" } },
    };
    (void)state;
    CHECK(cases);
}

/* What steering leaves out is valid all the same: the whole language has it. */
static void steered(void **state) {
    static const struct {
        const char *schema, *in, *out; /* texts of both, of the whole language alone */
    } cases[] = {
        /* listed members only; those of patterns and required ones count as listed */
        { "{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}}, \"required\": [\"b\"]}",
          "{\"b\": 1, \"a\": 3}", "{\"b\": 1, \"x\": 2}" },
        { "{\"type\": \"object\", \"properties\": {\"a\": {}}}", "{}", "{\"x\": 1}" },
        { "{\"type\": \"object\", \"properties\": {}}", "{}", "{\"x\": 1}" },
        { "{\"properties\": {\"a\": {}}, \"patternProperties\": {\"^x\": {}}}", "{\"xy\": 1, \"a\": 2}", "{\"y\": 1}" },
        { "{\"properties\": {\"a\": {}}, \"required\": [\"z\"]}", "{\"z\": 1, \"a\": 2}", "{\"z\": 1, \"y\": 1}" },
        { "{\"allOf\": [{\"properties\": {\"a\": {}}}, {\"properties\": {\"b\": {}}}]}", "{\"a\": 1, \"b\": 2}",
          "{\"a\": 1, \"c\": 2}" },
        { "{\"properties\": {\"a\": {\"properties\": {\"b\": {}}}}}", "{\"a\": {\"b\": 1}}", "{\"a\": {\"c\": 1}}" },
        { "{\"properties\": {\"a\": {}}, \"additionalProperties\": true}", "{\"x\": 1, \"a\": 2}", NULL },
        { "{\"properties\": {\"a\": {}}, \"additionalProperties\": {\"type\": \"null\"}}", "{\"x\": null}", NULL },
        { "{\"properties\": {\"a\": {}}, \"unevaluatedProperties\": true}", "{\"x\": 1}", NULL },
        { "{\"properties\": {\"a\": false}}", "{\"x\": 1}", NULL },
        { "{\"properties\": {\"a\": false}, \"minProperties\": 1}", "{\"x\": 1}", NULL },
        { "{\"type\": \"object\"}", "{\"x\": 1}", NULL },
        /* an open object begins with what was asked for, unless conditions speak of other names */
        { "{\"type\": \"object\", \"required\": [\"b\"]}", "{\"b\": 1, \"x\": 2}", "{\"x\": 2, \"b\": 1}" },
        { "{\"type\": \"object\", \"required\": [\"b\"], \"not\": {\"required\": [\"z\"]}}", "{\"x\": 1, \"b\": 2}",
          NULL },
        /* numbers */
        { "{\"type\": \"integer\"}", "-12", "-12.0" },
        { "{\"type\": \"integer\", \"minimum\": 3, \"multipleOf\": 2}", "4", "4.0" },
        { "{\"enum\": [1, 2.5]}", "1", "1.0" },
        { "{\"enum\": [1, 2.5]}", "2.5", "2.50" },
        { "{\"type\": \"number\"}", "1.0e5", NULL },
        { "{\"oneOf\": [{\"properties\": {\"a\": {\"type\": \"null\"}}}, {\"properties\": {\"b\": {}}, \"required\": "
          "[\"b\"]}]}",
          "{\"a\": null}", "{\"b\": 1, \"a\": 1}" },
        /* names and strings */
        { "{\"properties\": {\"a b\": {}}}", "{\"a b\": 1}", "{\"\\u0061 b\": 1}" },
        { "{\"properties\": {\"a\\\"/\\n\\u0001\": {}}}", "{\"a\\\"/\\n\\u0001\": 1}", "{\"a\\\"\\/\\n\\u0001\": 1}" },
        { "{\"properties\": {\"a\\n\": {}}}", "{\"a\\n\": 1}", "{\"a\\u000a\": 1}" },
        { "{\"type\": \"string\"}", "\"\xC3\xA9\\t\\\\\\u001F\"", "\"\\u00e9\"" },
        { "{\"type\": \"string\"}", "\"a/b\"", "\"a\\/b\"" },
        { "{\"type\": \"string\"}", "\"\\\"\"", "\"\\u0022\"" },
        { "{\"type\": \"string\", \"pattern\": \"^[a-z]+$\"}", "\"abc\"", "\"ab\\u0063\"" },
        { "{\"const\": {\"k\": \"x\"}}", "{\"k\": \"x\"}", "{\"\\u006b\": \"x\"}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned flags = 0; flags <= SCHEMA_STEERED; flags++) {
            ir    *g;
            ir_sym start;
            err    e = { 0 };
            assert_int_equal(ir_open(&g, &e), 0);
            assert_int_equal(schema_compile_with(g, view_of(cases[i].schema), flags, &start, &e), 0);
            if (!ir_walk(g, start, cases[i].in, strlen(cases[i].in), NULL))
                fail_msg("%s: %s is left out", cases[i].schema, cases[i].in);
            if (cases[i].out && ir_walk(g, start, cases[i].out, strlen(cases[i].out), NULL) != (flags == 0))
                fail_msg("%s: %s under %u", cases[i].schema, cases[i].out, flags);
            ir_free(g);
        }
    }
}

static void combinators(void **state) {
    static const schema_case cases[] = {
        { "{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"integer\", \"minimum\": 5}]}",
          { "\"a\"", "5" },
          { "4", "null" } },
        { "{\"oneOf\": [{\"type\": \"integer\"}, {\"minimum\": 5}]}", { "1", "5.5", "\"a\"" }, { "6", "4.5" } },
        { "{\"oneOf\": [{\"required\": [\"a\"]}, {\"required\": [\"b\"]}], \"type\": \"object\", \"properties\": "
          "{\"a\": {}, \"b\": {}}}",
          { "{\"a\": 1}", "{\"b\": 1}" },
          { "{}", "{\"a\": 1, \"b\": 2}", "{\"b\": 1, \"c\": 1, \"a\": 2}" } },
        { "{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"x\"}, \"v\": {\"type\": "
          "\"integer\"}}, \"required\": [\"k\", \"v\"]}, {\"type\": \"object\", \"properties\": {\"k\": {\"const\": "
          "\"y\"}}, \"required\": [\"k\"]}]}",
          { "{\"k\": \"x\", \"v\": 1}", "{\"k\": \"y\", \"v\": \"any\"}", "{\"v\": 1, \"k\": \"x\"}" },
          { "{\"k\": \"x\"}", "{\"k\": \"z\"}", "{\"v\": \"any\", \"k\": \"x\"}" } },
        { "{\"allOf\": [{\"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}, {\"properties\": "
          "{\"a\": {\"minimum\": 3}, \"b\": {}}, \"additionalProperties\": false}], \"type\": \"object\"}",
          { "{\"a\": 3}", "{\"b\": 1, \"a\": 4}" },
          { "{\"a\": 2}", "{\"a\": 3, \"c\": 1}", "{}" } },
        { "{\"if\": {\"properties\": {\"k\": {\"const\": 1}}, \"required\": [\"k\"]}, \"then\": {\"required\": "
          "[\"a\"]}, \"else\": {\"required\": [\"b\"]}, \"type\": \"object\"}",
          { "{\"k\": 1, \"a\": 0}", "{\"k\": 2, \"b\": 0}", "{\"b\": 0}" },
          { "{\"k\": 1}", "{\"k\": 1, \"b\": 0}", "{}", "{\"k\": 2, \"a\": 0}" } },
        { "{\"not\": {}, \"anyOf\": [true]}", { NULL }, { NULL } },
        { "{\"not\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"object\"}]}}",
          { "1", "[]", "null" },
          { "\"a\"", "{}" } },
        { "{\"not\": {\"not\": {\"type\": \"null\"}}}", { "null" }, { "1" } },
        { "{\"not\": {\"oneOf\": [{\"minimum\": 0}, {\"maximum\": 10}]}, \"type\": \"integer\"}",
          { "5", "0" },
          { "-1", "11" } },
        { "{\"type\": \"object\", \"allOf\": [{\"if\": {\"properties\": {\"t\": {\"const\": \"a\"}}}, \"then\": "
          "{\"required\": [\"x\"]}}, {\"if\": {\"properties\": {\"t\": {\"const\": \"b\"}}}, \"then\": {\"required\": "
          "[\"y\"]}}], \"required\": [\"t\"]}",
          { "{\"t\": \"a\", \"x\": 1}", "{\"t\": \"b\", \"y\": 1}", "{\"t\": \"c\"}" },
          { "{\"t\": \"a\"}", "{\"t\": \"b\", \"x\": 1}" } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].valid[0]) check_case(&cases[i]);
    }
}

static void references(void **state) {
    static const schema_case cases[] = {
        { "{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": "
          "\"integer\"}, \"next\": {\"anyOf\": [{\"$ref\": \"#/$defs/n\"}, {\"type\": \"null\"}]}}, \"required\": "
          "[\"v\", \"next\"], \"additionalProperties\": false}}}",
          { "{\"v\": 1, \"next\": null}", "{\"v\": 1, \"next\": {\"v\": 2, \"next\": null}}" },
          { "{\"v\": 1}", "{\"v\": 1, \"next\": {\"v\": 2}}" } },
        { "{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}", { "[]", "[[], [[]]]" }, { "[1]", "[[null]]" } },
        { "{\"$defs\": {\"a/b\": {\"type\": \"null\"}, \"c%d\": {\"type\": \"boolean\"}}, \"anyOf\": [{\"$ref\": "
          "\"#/$defs/a~1b\"}, {\"$ref\": \"#/$defs/c%25d\"}]}",
          { "null", "true" },
          { "1" } },
        { "{\"$id\": \"http://x.example/root.json\", \"$defs\": {\"a\": {\"$id\": \"sub/a.json\", \"$defs\": {\"t\": "
          "{\"type\": \"null\"}}, \"$ref\": \"#/$defs/t\"}}, \"$ref\": \"sub/a.json\"}",
          { "null" },
          { "1" } },
        { "{\"$defs\": {\"x\": {\"$anchor\": \"here\", \"type\": \"integer\"}}, \"$ref\": \"#here\"}",
          { "1" },
          { "null" } },
        { "{\"$schema\": \"http://json-schema.org/draft-07/schema#\", \"definitions\": {\"i\": {\"type\": "
          "\"integer\"}}, \"properties\": {\"a\": {\"$ref\": \"#/definitions/i\", \"minimum\": 5}}, \"type\": "
          "\"object\"}",
          { "{\"a\": 1}" },
          { "{\"a\": null}" } },
        { "{\"$defs\": {\"i\": {\"type\": \"integer\"}}, \"properties\": {\"a\": {\"$ref\": \"#/$defs/i\", "
          "\"minimum\": 5}}, \"type\": \"object\"}",
          { "{\"a\": 5}" },
          { "{\"a\": 1}", "{\"a\": null}" } },
        { "{\"$schema\": \"http://json-schema.org/draft-04/schema#\", \"definitions\": {\"a\": {\"id\": \"#foo\", "
          "\"type\": \"null\"}}, \"items\": {\"$ref\": \"#foo\"}, \"type\": \"array\"}",
          { "[null]" },
          { "[1]" } },
    };
    (void)state;
    CHECK(cases);
}

#define D4 "{\"$schema\": \"http://json-schema.org/draft-04/schema#\", "
#define D6 "{\"$schema\": \"http://json-schema.org/draft-06/schema#\", "
#define D7 "{\"$schema\": \"http://json-schema.org/draft-07/schema#\", "
#define D2019 "{\"$schema\": \"https://json-schema.org/draft/2019-09/schema\", "
#define D2020 "{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\", "

/* What a draft does not have says nothing; without $schema everything counts. tests/api/drafts.mjs has the rest. */
static void drafts(void **state) {
#define IF "\"type\": \"integer\", \"if\": {\"minimum\": 5}, \"then\": {\"multipleOf\": 5}, \"else\": {\"maximum\": 2}}"
#define TUPLE "\"type\": \"array\", \"items\": [{\"type\": \"null\"}], \"additionalItems\": false}"
#define PREFIX "\"type\": \"array\", \"prefixItems\": [{\"type\": \"null\"}], \"items\": {\"type\": \"integer\"}}"
#define COUNT "\"type\": \"array\", \"contains\": {\"type\": \"null\"}, \"minContains\": 0, \"maxItems\": 2}"
#define DYNAMIC "\"type\": \"null\", \"$dynamicRef\": \"#x\"}"
    static const schema_case cases[] = {
        { D4 IF, { "3", "6" }, { "1.5" } },
        { D6 IF, { "3", "6" }, { "1.5" } },
        { D7 IF, { "2", "10" }, { "3", "6" } },
        { "{" IF, { "2", "10" }, { "3", "6" } },
        { D4 "\"type\": \"integer\", \"const\": 1}", { "1", "2" }, { "1.5" } },
        { D6 "\"type\": \"integer\", \"const\": 1}", { "1" }, { "2" } },
        { D7 TUPLE, { "[]", "[null]" }, { "[1]", "[null, 1]" } },
        { "{" TUPLE, { "[]", "[null]" }, { "[1]", "[null, 1]" } },
        { D2019 PREFIX, { "[1]", "[1, 2]" }, { "[null]" } },
        { D2020 PREFIX, { "[null]", "[null, 2]" }, { "[1]" } },
        { "{" PREFIX, { "[null]", "[null, 2]" }, { "[1]" } },
        { D7 COUNT, { "[null]" }, { "[]", "[1]" } },
        { D2019 COUNT, { "[null]", "[]", "[1]" }, { "[1, 2, 3]" } },
        { D7 DYNAMIC, { "null" }, { "1" } },
        /* The drafts' own names of places; a pointer leads anywhere. */
        { D4 "\"$defs\": {\"i\": {\"type\": \"null\"}}, \"items\": {\"$ref\": \"#/$defs/i\"}, \"type\": \"array\"}",
          { "[null]" },
          { "[1]" } },
        { D6
          "\"definitions\": {\"i\": {\"$id\": \"#foo\", \"id\": \"#bar\", \"type\": \"null\"}}, \"type\": \"array\", "
          "\"items\": {\"$ref\": \"#foo\"}}",
          { "[null]" },
          { "[1]" } },
        /* Kinds that a draft tells apart by what it does not have. */
        { D4 "\"oneOf\": [{\"enum\": [1, 2], \"const\": 1}, {\"enum\": [2, 3], \"const\": 3}]}",
          { "1", "3" },
          { "2" } },
        { D7
          "\"oneOf\": [{\"type\": \"object\", \"required\": [\"k\"], \"properties\": {\"k\": {\"$ref\": "
          "\"#/definitions/i\", \"const\": 1}}}, {\"type\": \"object\", \"required\": [\"k\"], \"properties\": {\"k\": "
          "{\"const\": 2}}}], \"definitions\": {\"i\": {\"type\": \"integer\"}}}",
          { "{\"k\": 1}", "{\"k\": 3}" },
          { "{\"k\": 2}", "{}" } },
    };
    (void)state;
    CHECK(cases);
}

static void refusals(void **state) {
    static const struct {
        const char *schema, *message;
        int         code;
    } cases[] = {
        { "{\"properties\": {\"x\": {\"type\": \"array\", \"uniqueItems\": true}}}",
          "schema at #/properties/x: 'uniqueItems'", ERR_UNSUPPORTED },
        { "{\"items\": {\"$ref\": \"http://elsewhere.example/s.json\"}}",
          "schema at #/items: '$ref' to another document", ERR_UNSUPPORTED },
        { "{\"$ref\": \"#/nowhere\"}", "'$ref': there is nothing at #/nowhere", ERR_FORMAT },
        { "{\"type\": \"strnig\"}", "unknown type \"strnig\"", ERR_FORMAT },
        { "{\"properties\": {\"a/b\": {\"$dynamicRef\": \"#x\"}}}", "schema at #/properties/a~1b: '$dynamicRef'",
          ERR_UNSUPPORTED },
        { "{\"type\": \"string\", \"pattern\": \"(\"}", "pattern", ERR_FORMAT },
        { "{\"type\": \"string\", \"pattern\": \"(a)\\\\1\"}", "pattern", ERR_UNSUPPORTED },
        { "{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 2}", "contradicts itself", ERR_ARG },
        { "{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", "contradicts itself", ERR_ARG },
        { "false", "contradicts itself", ERR_ARG },
        { "{\"type\": \"object\", \"properties\": {\"a\": false}, \"required\": [\"a\"]}", "contradicts itself",
          ERR_ARG },
        { "[1]", "neither an object nor a boolean", ERR_FORMAT },
        { "{\"minLength\": -1}", "'minLength'", ERR_FORMAT },
        { "{\"properties\": []}", "'properties' is not an object", ERR_FORMAT },
        { "{\"type\": \"object\", \"minProperties\": 3}", "'minProperties'", ERR_UNSUPPORTED },
        { "{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}}, \"minProperties\": 2}",
          "'minProperties' 2 is not supported with 0", ERR_UNSUPPORTED },
        { "{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"type\": \"integer\", \"minimum\": 0}, "
          "\"maxItems\": 2}",
          "'uniqueItems'", ERR_UNSUPPORTED },
        { "{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"type\": \"integer\", \"minimum\": 0, "
          "\"maximum\": 99}}",
          "'uniqueItems'", ERR_UNSUPPORTED },
        { D4 "\"exclusiveMinimum\": 1}", "'exclusiveMinimum' is a boolean under the draft", ERR_FORMAT },
        { D6 "\"not\": {\"exclusiveMaximum\": true}}", "'exclusiveMaximum' is not a boolean under", ERR_FORMAT },
        { D2020 "\"items\": [true]}", "'items' is an array, which draft 2020-12 calls 'prefixItems'", ERR_FORMAT },
        { D2020 "\"$dynamicRef\": \"#x\"}", "'$dynamicRef' is not supported", ERR_UNSUPPORTED },
        { D7 "\"type\": \"array\", \"items\": {\"$ref\": \"#a\"}, \"definitions\": {\"a\": {\"$anchor\": \"a\"}}}",
          "'$ref': there is nothing at #a", ERR_FORMAT },
        { "{", "schema: JSON", ERR_FORMAT },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ir    *g;
        ir_sym start;
        err    e = { 0 };
        int    rc;
        assert_int_equal(ir_open(&g, &e), 0);
        rc = schema_compile(g, view_of(cases[i].schema), &start, &e);
        if (rc != cases[i].code || !strstr(e.msg, cases[i].message))
            fail_msg("%s: %d %s, not %d %s", cases[i].schema, rc, e.msg, cases[i].code, cases[i].message);
        ir_free(g);
    }
}

/* Deep, wide and explosive schemas end with a sentence, and soon. */
static void limits(void **state) {
    str    s;
    ir    *g;
    ir_sym start;
    err    e = { 0 };
    (void)state;
    str_init(&s);
    str_puts(&s, "{\"$ref\": \"#/$defs/d0\", \"$defs\": {");
    for (int i = 0; i < 20000; i++)
        str_printf(&s, "\"d%d\": {\"properties\": {\"x\": {\"$ref\": \"#/$defs/d%d\"}}},", i, i + 1);
    str_puts(&s, "\"d20000\": {\"type\": \"null\"}}}");
    assert_int_equal(ir_open(&g, &e), 0);
    assert_int_equal(schema_compile(g, (view){ s.data, s.len }, &start, &e), 0);
    ir_free(g);
    str_clear(&s);
    str_puts(&s, "{\"allOf\": [");
    for (int i = 0; i < 30; i++)
        str_printf(&s, "%s{\"anyOf\": [{\"pattern\": \"a%d\"}, {\"pattern\": \"b%d\"}]}", i ? "," : "", i, i);
    str_puts(&s, "]}");
    assert_int_equal(ir_open(&g, &e), 0);
    assert_int_equal(schema_compile(g, (view){ s.data, s.len }, &start, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "alternatives"));
    ir_free(g);
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types),       cmocka_unit_test(white_space), cmocka_unit_test(values),
        cmocka_unit_test(strings),     cmocka_unit_test(formats),     cmocka_unit_test(numbers),
        cmocka_unit_test(arrays),      cmocka_unit_test(objects),     cmocka_unit_test(steered),
        cmocka_unit_test(combinators), cmocka_unit_test(references),  cmocka_unit_test(drafts),
        cmocka_unit_test(refusals),    cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
