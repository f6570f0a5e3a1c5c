/* SPDX-License-Identifier: Apache-2.0 */
/* A key is changed in a file's text, and nothing else; what lines cannot do is refused. */
#include "config/edit.h"
#include "config/server.h"
#include "unit/support/support.h"

#include <string.h>

typedef struct edit_case {
    const char *before, *key, *value, *after; /* after NULL: refused */
} edit_case;

static const edit_case cases[] = {
    { "", "transport.port", "80", "transport:\n  port: 80\n" },
    { "# mine\n", "transport.port", "80", "# mine\ntransport:\n  port: 80\n" },
    { "transport:\n  port: 1 # low\n", "transport.port", "80", "transport:\n  port: 80 # low\n" },
    { "transport:\n    # where\n    host: \"a # b\"   # c\n", "transport.host", "\"d\"",
      "transport:\n    # where\n    host: \"d\"   # c\n" },
    { "transport:\r\n  port: 1\r\n  tcp: true\r\n", "transport.port", "80",
      "transport:\r\n  port: 80\r\n  tcp: true\r\n" },
    { "transport:\n  # where\n  host: a\n", "transport.port", "80", "transport:\n  port: 80\n  # where\n  host: a\n" },
    { "transport: # none\ntelemetry:\n  log_level: info", "transport.port", "80",
      "transport: # none\n  port: 80\ntelemetry:\n  log_level: info" },
    { "telemetry:\n  log_level: info", "telemetry.log_level", "debug", "telemetry:\n  log_level: debug" },
    { "telemetry:\n  log_level: info", "transport.port", "80",
      "telemetry:\n  log_level: info\ntransport:\n  port: 80\n" },
    { "transport:\n  cors_origins: [\"http://a\", 'http://]b'] # two\n", "transport.cors_origins", "[\"http://c\"]",
      "transport:\n  cors_origins: [\"http://c\"] # two\n" },
    { "transport:\n  port: 1 # gone\n  tcp: true\n", "transport.port", NULL, "transport:\n  tcp: true\n" },
    { "transport:\n  tcp: true\n", "transport.port", NULL, "transport:\n  tcp: true\n" },
    { "models:\n  keep_alive: 5m\n", "models.keep_alive", "1h", "models:\n  keep_alive: 1h\n" },
    /* refused */
    { "transport:\n  port:\n  tcp: true\n", "transport.port", "80", NULL },
    { "transport: {port: 1}\n", "transport.port", "80", NULL },
    { "{transport: {port: 1}}\n", "transport.port", "80", NULL },
    { "transport:\n  cors_origins:\n    - http://a\n", "transport.cors_origins", "[]", NULL },
    { "transport:\n  host: |\n    a\n", "transport.host", "b", NULL },
    { "transport:\n  host: \"a\n    b\"\n", "transport.host", "b", NULL },
    { "transport:\n  host: a\n    b\n", "transport.host", "c: d", NULL },
    { "transport:\n  prot: 1\n", "transport.port", "80", NULL },
    { "transport:\n  port: 1\n", "transport.port", "many", NULL },
    { "transport:\n  port: 1\n", "transport.port", "80\ntelemetry:\n  log_level: debug", NULL },
};

static void test_edits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const edit_case *c = &cases[i];
        err              e = { 0 };
        str              out;
        str_init(&out);
        int rc = config_edit(view_of(c->before), &config_server_schema, config_find_key(&config_server_schema, c->key),
                             c->value, &out, &e);
        if (!c->after && (rc == 0 || !e.msg[0])) fail_msg("%zu: taken: %s", i, str_cstr(&out));
        if (c->after && rc < 0) fail_msg("%zu: refused: %s", i, e.msg);
        if (c->after) assert_string_equal(str_cstr(&out), c->after);
        str_deinit(&out);
    }
}

/* Of the file with every key that `hearth config init` writes. */
static void test_every_key(void **state) {
    str text;
    (void)state;
    str_init(&text);
    config_document_yaml(&config_server_schema, "# head\n", &text);
    for (size_t i = 0; i < config_server_schema.n; i++) {
        const config_key *k = &config_server_schema.keys[i];
        err               e = { 0 };
        str               once, twice;
        if (k->type != CONFIG_INT && k->type != CONFIG_BOOL) continue;
        str_init(&once);
        str_init(&twice);
        const char *value = k->refused ? "false" : k->type == CONFIG_BOOL ? "true" : k->dflt ? k->dflt : "1";
        assert_int_equal(config_edit((view){ str_cstr(&text), text.len }, &config_server_schema, k, value, &once, &e),
                         0);
        assert_true(strstr(str_cstr(&once), "# head") && once.len > text.len);
        assert_int_equal(config_edit((view){ str_cstr(&once), once.len }, &config_server_schema, k, NULL, &twice, &e),
                         0);
        str_deinit(&once);
        str_deinit(&twice);
    }
    str_deinit(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_edits), cmocka_unit_test(test_every_key) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
