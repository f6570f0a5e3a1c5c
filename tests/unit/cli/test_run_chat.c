/* SPDX-License-Identifier: Apache-2.0 */
/* The chat of `hearth run` on a pseudo-terminal: conversation, commands, blocks of lines, Ctrl-C, history. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

typedef struct terminal {
    int   fd;
    pid_t pid;
    str   seen; /* since the last expect */
    char *dir;
} terminal;

/* tools: a file for --tools, or NULL. */
static void terminal_open(terminal *t, const char *tools) {
    const char *program = getenv("HEARTH_PROGRAM");
    if (!program) {
        printf("skipped: HEARTH_PROGRAM is not set\n");
        skip();
    }
    struct winsize size = { .ws_row = 24, .ws_col = 100 };
    t->dir = test_temp_dir();
    str_init(&t->seen);
    t->pid = forkpty(&t->fd, NULL, NULL, &size);
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        setenv("XDG_STATE_HOME", t->dir, 1);
        setenv("TERM", "xterm", 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        execl(program, program, "run", "demo", "--temp", "0", tools ? "--tools" : (char *)NULL, tools, (char *)NULL);
        _exit(127);
    }
}

static int terminal_close(terminal *t) {
    int status;
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    close(t->fd);
    str_deinit(&t->seen);
    test_temp_dir_remove(t->dir);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* More output; false when the program is gone. */
static bool more(terminal *t, const char *wanted) {
    char          buffer[4096];
    struct pollfd p = { .fd = t->fd, .events = POLLIN };
    if (poll(&p, 1, PATIENCE_MS) == 0)
        fail_msg("no output for 20 s instead of \"%s\"; so far: %s", wanted, str_cstr(&t->seen));
    ssize_t n = read(t->fd, buffer, sizeof buffer);
    if (n <= 0) return false;
    str_append(&t->seen, buffer, (size_t)n);
    return true;
}

static void expect(terminal *t, const char *text) {
    char *at;
    while (!(at = strstr(str_cstr(&t->seen), text))) {
        if (!more(t, text)) fail_msg("it ended before \"%s\"; so far: %s", text, str_cstr(&t->seen));
    }
    size_t rest = strlen(at + strlen(text));
    memmove(t->seen.data, at + strlen(text), rest + 1);
    t->seen.len = rest;
}

/* The prompt, and a terminal that no longer echoes by itself: libedit switches it behind the prompt. */
static void expect_prompt(terminal *t) {
    struct termios m;
    expect(t, ">>> ");
    do {
        assert_int_equal(tcgetattr(t->fd, &m), 0);
        if (m.c_lflag & ICANON) poll(NULL, 0, 1);
    } while (m.c_lflag & ICANON);
}

static void type(terminal *t, const char *text) {
    assert_int_equal(write(t->fd, text, strlen(text)), (ssize_t)strlen(text));
}

/* Types a line; the answer or the reply follows, then the prompt. */
static void say(terminal *t, const char *line, const char *reply) {
    type(t, line);
    type(t, "\n");
    expect(t, reply);
    expect_prompt(t);
}

static void test_talk(void **state) {
    terminal t;
    char     line[512], *saved, *path;
    size_t   bytes;
    (void)state;
    terminal_open(&t, NULL);
    expect_prompt(&t);
    say(&t, "My name is Tom.", "Nice to meet you, Tom.\r\n");
    say(&t, "What is my name?", "Your name is Tom.\r\n");
    say(&t, "/stats", "conversation: 4 messages, context of 4096 tokens\r\n");
    say(&t, "/nonsense", "/nonsense is not a command");
    say(&t, "/set top_k 7", "");
    say(&t, "/set", "temperature 0, top_k 7,");
    say(&t, "/set top_p 2", "top_p: 2 is not between 0 and 1");
    say(&t, "/set top_k 1.5", "top_k: '1.5' is not a whole number");
    say(&t, "/set warmth 1", "'warmth' is not a parameter");
    say(&t, "/set dry_base 2", "");
    say(&t, "/set", "dry_base 2,");
    snprintf(line, sizeof line, "/save %s/talk.json", t.dir);
    say(&t, line, "4 messages saved\r\n");
    path = path_join(t.dir, "talk.json");
    assert_int_equal(file_read(&saved, &bytes, path, 1 << 16, NULL), 0);
    assert_non_null(strstr(saved, "{\"role\": \"assistant\", \"content\": \"Nice to meet you, Tom.\"}"));
    free(saved);
    free(path);
    say(&t, "/clear", "");
    say(&t, "/stats", "conversation: 0 messages");
    snprintf(line, sizeof line, "/load %s/talk.json", t.dir);
    say(&t, line, "4 messages loaded\r\n");
    say(&t, "What is my name?", "Your name is Tom.\r\n");
    say(&t, "/load /nowhere/talk.json", "No such file");
    say(&t, "/clear", "");
    type(&t, "\"\"\"What is\n");
    expect(&t, "... ");
    say(&t, "12 plus 30?\"\"\"", "12 plus 30 is 42.\r\n");
    /* The line before is one arrow up. */
    type(&t, "\033[A");
    expect(&t, "/clear");
    say(&t, "", "");
    type(&t, "/bye\n");
    while (more(&t, "its end")) {
    }
    path = path_join(t.dir, "hearth/history");
    assert_true(file_exists(path));
    free(path);
    assert_int_equal(terminal_close(&t), 0);
}

static void test_interrupt(void **state) {
    terminal t;
    (void)state;
    terminal_open(&t, NULL);
    expect_prompt(&t);
    type(&t, "Tell me a long story about a cat and a boat.\n");
    expect(&t, "boat.\r\n");
    expect(&t, " "); /* the answer has begun */
    type(&t, "\003");
    expect(&t, "(stopped)");
    expect_prompt(&t);
    say(&t, "/stats", "conversation: 2 messages"); /* what was said stays */
    type(&t, "half a line\003");
    expect(&t, "Ctrl-C again");
    expect_prompt(&t);
    type(&t, "\003");
    while (more(&t, "its end")) {
    }
    assert_int_equal(terminal_close(&t), 0);
}

/* A call is shown, its result typed in; thoughts are dimmed; both can be switched. */
static void test_tools(void **state) {
    terminal t;
    (void)state;
    terminal_open(&t, HEARTH_SOURCE_DIR "/tests/fixtures/tools/house.json");
    expect_prompt(&t);
    type(&t, "What is the weather in Paris?\n");
    expect(&t, "call\033[0m get_weather {\"city\": \"Paris\"}\r\n");
    expect(&t, "result> ");
    say(&t, "{\"weather\": \"sunny\", \"degrees\": 21}", "It is sunny in Paris, with 21 degrees.\r\n");
    say(&t, "/stats", "conversation: 4 messages");
    say(&t, "/clear", "");
    type(&t, "Set a timer for 12 minutes.\n");
    expect(&t, "call\033[0m set_timer {\"minutes\": 12}\r\n");
    expect(&t, "result> ");
    type(&t, "\003");
    expect(&t, "(no result was given: the question is dropped)");
    expect_prompt(&t);
    say(&t, "/stats", "conversation: 0 messages");
    say(&t, "/tools", "tools are on");
    say(&t, "/tools off", "tools are off");
    say(&t, "/tools maybe", "/tools must be on or off");
    say(&t, "/think on", "thinking is on");
    type(&t, "What is 12 plus 30?\n");
    expect(&t, "\033[2m");
    expect(&t, "40 + 2 = 42.\033[0m\r\n\r\n12 plus 30 is 42.\r\n");
    expect_prompt(&t);
    type(&t, "/bye\n");
    while (more(&t, "its end")) {
    }
    assert_int_equal(terminal_close(&t), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_talk), cmocka_unit_test(test_interrupt),
                                        cmocka_unit_test(test_tools) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
