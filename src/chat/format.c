/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/format.h"

#include <string.h>

static const chat_syntax_row rows[CHAT_SYNTAX_COUNT] = {
    [CHAT_SYNTAX_NONE] = { CHAT_SYNTAX_NONE, CHAT_SHAPE_NONE, "none", .open = NULL },
    [CHAT_SYNTAX_HERMES] = { CHAT_SYNTAX_HERMES, CHAT_SHAPE_JSON, "hermes", .open = "<tool_call>",
                             .close = "</tool_call>", .key_name = "name", .key_arguments = "arguments" },
    [CHAT_SYNTAX_LLAMA3] = { CHAT_SYNTAX_LLAMA3, CHAT_SHAPE_BARE, "llama3", .open = "<|python_tag|>",
                             .key_name = "name", .key_arguments = "parameters" },
    [CHAT_SYNTAX_QWEN_XML] = { CHAT_SYNTAX_QWEN_XML, CHAT_SHAPE_TAGS, "qwen-xml", .open = "<tool_call>",
                               .close = "</tool_call>" },
    [CHAT_SYNTAX_MISTRAL] = { CHAT_SYNTAX_MISTRAL, CHAT_SHAPE_JSON, "mistral", .open = "[TOOL_CALLS]",
                              .key_name = "name", .key_arguments = "arguments", .key_id = "id", .list = true,
                              .section = true, .special = true },
    [CHAT_SYNTAX_MISTRAL_ARGS] = { CHAT_SYNTAX_MISTRAL_ARGS, CHAT_SHAPE_NAME_JSON, "mistral-args",
                                   .open = "[TOOL_CALLS]", .separator = "[ARGS]", .special = true },
    [CHAT_SYNTAX_DEEPSEEK] = { CHAT_SYNTAX_DEEPSEEK, CHAT_SHAPE_NAME_JSON, "deepseek", .open = "<｜tool▁calls▁begin｜>",
                               .close = "<｜tool▁calls▁end｜>", .call_open = "<｜tool▁call▁begin｜>",
                               .separator = "<｜tool▁sep｜>", .call_close = "<｜tool▁call▁end｜>", .section = true,
                               .special = true },
    [CHAT_SYNTAX_GLM] = { CHAT_SYNTAX_GLM, CHAT_SHAPE_PAIRS, "glm", .open = "<tool_call>", .close = "</tool_call>" },
    [CHAT_SYNTAX_KIMI] = { CHAT_SYNTAX_KIMI, CHAT_SHAPE_NAME_JSON, "kimi", .open = "<|tool_calls_section_begin|>",
                           .close = "<|tool_calls_section_end|>", .call_open = "<|tool_call_begin|>",
                           .separator = "<|tool_call_argument_begin|>", .call_close = "<|tool_call_end|>",
                           .section = true, .special = true },
    [CHAT_SYNTAX_HARMONY] = { CHAT_SYNTAX_HARMONY, CHAT_SHAPE_HARMONY, "harmony", .open = "<|channel|>",
                              .special = true },
    [CHAT_SYNTAX_LFM2] = { CHAT_SYNTAX_LFM2, CHAT_SHAPE_PYTHON, "lfm2", .open = "<|tool_call_start|>",
                           .close = "<|tool_call_end|>", .section = true, .special = true },
    [CHAT_SYNTAX_GEMMA4] = { CHAT_SYNTAX_GEMMA4, CHAT_SHAPE_GEMMA, "gemma4", .open = "<|tool_call>",
                             .close = "<tool_call|>", .special = true },
    [CHAT_SYNTAX_MINIMAX] = { CHAT_SYNTAX_MINIMAX, CHAT_SHAPE_INVOKE, "minimax", .open = "<minimax:tool_call>",
                              .close = "</minimax:tool_call>", .section = true, .special = true },
    [CHAT_SYNTAX_COMMAND_R] = { CHAT_SYNTAX_COMMAND_R, CHAT_SHAPE_JSON, "command-r", .open = "<|START_ACTION|>",
                                .close = "<|END_ACTION|>", .key_name = "tool_name", .key_arguments = "parameters",
                                .key_id = "tool_call_id", .list = true, .section = true, .special = true },
    [CHAT_SYNTAX_SEED] = { CHAT_SYNTAX_SEED, CHAT_SHAPE_TAGS, "seed", .open = "<seed:tool_call>",
                           .close = "</seed:tool_call>", .special = true },
    [CHAT_SYNTAX_NEMOTRON] = { CHAT_SYNTAX_NEMOTRON, CHAT_SHAPE_JSON, "nemotron", .open = "<TOOLCALL>",
                               .close = "</TOOLCALL>", .key_name = "name", .key_arguments = "arguments", .list = true,
                               .section = true },
    [CHAT_SYNTAX_TOOL_CALLS] = { CHAT_SYNTAX_TOOL_CALLS, CHAT_SHAPE_JSON, "tool-calls", .open = "<tool_calls>",
                                 .close = "</tool_calls>", .key_name = "name", .key_arguments = "arguments",
                                 .list = true, .section = true },
    [CHAT_SYNTAX_GRANITE3] = { CHAT_SYNTAX_GRANITE3, CHAT_SHAPE_JSON, "granite3", .open = "<|tool_call|>",
                               .key_name = "name", .key_arguments = "arguments", .list = true, .section = true,
                               .special = true },
    [CHAT_SYNTAX_APERTUS] = { CHAT_SYNTAX_APERTUS, CHAT_SHAPE_JSON, "apertus", .open = "<|tools_prefix|>",
                              .close = "<|tools_suffix|>", .list = true, .section = true, .special = true },
    [CHAT_SYNTAX_COMMAND_R_PLUS] = { CHAT_SYNTAX_COMMAND_R_PLUS, CHAT_SHAPE_JSON, "command-r-plus",
                                     .open = "Action:\n```json", .close = "```", .key_name = "tool_name",
                                     .key_arguments = "parameters", .list = true, .section = true },
    [CHAT_SYNTAX_GIGACHAT] = { CHAT_SYNTAX_GIGACHAT, CHAT_SHAPE_JSON, "gigachat",
                               .open = "<|message_sep|>\n\nfunction call<|role_sep|>\n", .key_name = "name",
                               .key_arguments = "arguments", .special = true },
};

const chat_syntax_row *chat_syntax_get(chat_syntax s) {
    return &rows[(unsigned)s < CHAT_SYNTAX_COUNT ? s : CHAT_SYNTAX_NONE];
}

bool chat_format_thinks(const chat_format *f) { return f->think_open || f->syntax == CHAT_SYNTAX_HARMONY; }

static bool has(view text, const char *what) { return memmem(text.data, text.len, what, strlen(what)) != NULL; }

/* The most telling marks first: templates quote other families' marks in instructions and comments. */
static chat_syntax find_syntax(view t) {
    static const struct {
        const char *a, *b; /* both must be there; b may be NULL */
        chat_syntax syntax;
    } signs[] = {
        { "<|channel|>", "<|message|>", CHAT_SYNTAX_HARMONY },
        { "<|tool_call>", NULL, CHAT_SYNTAX_GEMMA4 },
        { "<minimax:tool_call>", NULL, CHAT_SYNTAX_MINIMAX },
        { "<seed:tool_call>", NULL, CHAT_SYNTAX_SEED },
        { "<｜tool▁calls▁begin｜>", NULL, CHAT_SYNTAX_DEEPSEEK },
        { "<|tool_calls_section_begin|>", NULL, CHAT_SYNTAX_KIMI },
        { "[TOOL_CALLS]", "[ARGS]", CHAT_SYNTAX_MISTRAL_ARGS },
        { "[TOOL_CALLS]", NULL, CHAT_SYNTAX_MISTRAL },
        { "<|START_ACTION|>", NULL, CHAT_SYNTAX_COMMAND_R },
        { "<|tool_call_start|>", NULL, CHAT_SYNTAX_LFM2 },
        { "<|tool_list_start|>", NULL, CHAT_SYNTAX_LFM2 },
        { "<arg_key>", "<arg_value>", CHAT_SYNTAX_GLM },
        { "<function=", "<parameter=", CHAT_SYNTAX_QWEN_XML },
        { "<function=", NULL, CHAT_SYNTAX_NONE },        /* Functionary */
        { "]minimax[", NULL, CHAT_SYNTAX_NONE },         /* MiniMax M3 */
        { "<|function_call|>", NULL, CHAT_SYNTAX_NONE }, /* GigaChat 3.1 */
        { "<tool_calls>", NULL, CHAT_SYNTAX_TOOL_CALLS },
        { "<TOOLCALL>", NULL, CHAT_SYNTAX_NEMOTRON },
        { "<|tools_prefix|>", NULL, CHAT_SYNTAX_APERTUS },
        { "<|tool_call|>", NULL, CHAT_SYNTAX_GRANITE3 },
        { "<tool_call>", NULL, CHAT_SYNTAX_HERMES },
        { "Action:", "```json", CHAT_SYNTAX_COMMAND_R_PLUS },
        { "function call", "<|role_sep|>", CHAT_SYNTAX_GIGACHAT },
        { "<|python_tag|>", NULL, CHAT_SYNTAX_LLAMA3 },
        { "<|start_header_id|>", "\"parameters\": ", CHAT_SYNTAX_LLAMA3 },
        { "List of tools: [", "<|im_start|>", CHAT_SYNTAX_LFM2 },
    };
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (has(t, signs[i].a) && (!signs[i].b || has(t, signs[i].b))) return signs[i].syntax;
    }
    return CHAT_SYNTAX_NONE;
}

static const struct think_marks {
    const char *open, *close, *empty, *end;
    bool        special, implicit;
} think_marks[] = {
    { "<|channel>thought", "<channel|>", "<|channel>thought\n<channel|>", "<channel|>", true, false },
    { "[THINK]", "[/THINK]", "[THINK][/THINK]", "[/THINK]", true, false },
    { "<seed:think>", "</seed:think>",
      "<seed:think>\n<seed:cot_budget_reflect>The current thinking budget is 0, so I will directly start answering the "
      "question.</seed:cot_budget_reflect>\n</seed:think>",
      "</seed:think>", true, false },
    { "<|START_THINKING|>", "<|END_THINKING|>", "<|START_THINKING|><|END_THINKING|>", "<|END_THINKING|>", true, false },
    { "<|inner_prefix|>", "<|inner_suffix|>", "<|inner_prefix|><|inner_suffix|>", "<|inner_suffix|>", true, false },
    { "◁think▷", "◁/think▷", "◁think▷◁/think▷", "◁/think▷", true, false },
    { "Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]", NULL, "\n[BEGIN FINAL RESPONSE]\n", false, true },
    { "<think>", "</think>", "<think>\n\n</think>\n\n", "\n</think>\n\n", false, false },
    { "<thinking>", "</thinking>", "<thinking>\n\n</thinking>\n\n", "\n</thinking>\n\n", false, false },
};

/* A template writes line breaks in strings as \n, elsewhere as they are. */
static bool has_empty_block(view t, const char *gap_escaped, const char *gap) {
    str  s;
    bool found;
    str_init(&s);
    str_printf(&s, "<think>%s</think>", gap_escaped);
    found = has(t, str_cstr(&s));
    str_clear(&s);
    str_printf(&s, "<think>%s</think>", gap);
    found = found || has(t, str_cstr(&s));
    str_deinit(&s);
    return found;
}

static void use_marks(chat_format *f, const struct think_marks *m) {
    f->think_open = m->open;
    f->think_close = m->close;
    f->think_empty = m->empty;
    f->think_end = m->end;
    f->think_anywhere = m->special;
    f->think_implicit = m->implicit;
}

void chat_format_think_by_tokens(chat_format *f, bool (*knows)(const void *ctx, const char *token), const void *ctx) {
    for (size_t i = 0; i < sizeof think_marks / sizeof *think_marks && !f->think_open; i++) {
        if (knows(ctx, think_marks[i].open) && knows(ctx, think_marks[i].close)) use_marks(f, &think_marks[i]);
    }
}

static void find_thoughts(chat_format *f, view t) {
    if (f->syntax == CHAT_SYNTAX_HARMONY) return;
    for (size_t i = 0; i < sizeof think_marks / sizeof *think_marks; i++) {
        const struct think_marks *m = &think_marks[i];
        bool                      gemma = m->open[0] == '<' && m->open[1] == '|' && m->open[2] == 'c';
        if (m->implicit ? !has(t, m->close) : !has(t, gemma ? "<|channel>" : m->open) && !has(t, m->close)) continue;
        use_marks(f, m);
        if (strcmp(m->open, "<think>") == 0) {
            if (has_empty_block(t, "", "")) {
                f->think_empty = "<think></think>";
                f->think_end = "</think>";
            } else if (!has(t, m->open)) {
                f->think_empty = NULL; /* thoughts are only cut out of the history: the model need not have any */
            }
        }
        break;
    }
}

static void find_wrappers(chat_format *f, view t) {
    static const struct {
        const char *open, *close;
    } wrappers[] = {
        { "<|START_RESPONSE|>", "<|END_RESPONSE|>" },
        { "<|START_TEXT|>", "<|END_TEXT|>" },
        { "<response>", "</response>" },
        { "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]" },
    };
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers && !f->content_open; i++) {
        if (!has(t, wrappers[i].open) || !has(t, wrappers[i].close)) continue;
        /* MiniMax writes tool results, not answers, in <response>. */
        if (i == 2 && f->syntax != CHAT_SYNTAX_GRANITE3) continue;
        f->content_open = wrappers[i].open;
        f->content_close = wrappers[i].close;
    }
    /* Laguna's turns end in a tag of plain text, in front of the end token. */
    if (!f->content_close && has(t, "<assistant>") && has(t, "</assistant>")) f->content_close = "</assistant>";
}

void chat_format_detect(chat_format *out, const char *template_text, size_t bytes) {
    view t = { template_text, bytes };
    memset(out, 0, sizeof *out);
    out->syntax = bytes ? find_syntax(t) : CHAT_SYNTAX_NONE;
    out->row = chat_syntax_get(out->syntax);
    if (!bytes) return;
    find_thoughts(out, t);
    find_wrappers(out, t);
    out->deepseek_fenced = out->syntax == CHAT_SYNTAX_DEEPSEEK && has(t, "```json");
    if (out->syntax == CHAT_SYNTAX_GLM) out->compact = has(t, "{function-name}<arg_key>");
    if (out->syntax == CHAT_SYNTAX_MISTRAL_ARGS) out->compact = !has(t, "[CALL_ID]");
}

void chat_format_make_generic(chat_format *f) {
    f->syntax = CHAT_SYNTAX_HERMES;
    f->row = chat_syntax_get(f->syntax);
    f->generic = true;
}

const char *chat_format_marker(const chat_format *f, size_t index) {
    static const char *const harmony[] = { "<|start|>",   "<|end|>",       "<|message|>",
                                           "<|channel|>", "<|constrain|>", "<|call|>" };
    static const char *const gemma[] = { "<|channel>", "<channel|>", "<|\"|>" };
    static const char *const giga[] = { "<|message_sep|>", "<|role_sep|>" };
    const char              *list[24];
    size_t                   n = 0;
    const chat_syntax_row   *r = f->row;
    const char *const        own[] = { r->open,       r->close,       r->call_open,    r->separator,    r->call_close,
                                       f->think_open, f->think_close, f->content_open, f->content_close };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (own[i]) list[n++] = own[i];
    }
    if (f->syntax == CHAT_SYNTAX_HARMONY) {
        for (size_t i = 0; i < sizeof harmony / sizeof *harmony; i++) list[n++] = harmony[i];
    } else if (f->syntax == CHAT_SYNTAX_GEMMA4) {
        for (size_t i = 0; i < sizeof gemma / sizeof *gemma; i++) list[n++] = gemma[i];
    } else if (f->syntax == CHAT_SYNTAX_GIGACHAT) {
        for (size_t i = 0; i < sizeof giga / sizeof *giga; i++) list[n++] = giga[i];
    } else if (f->syntax == CHAT_SYNTAX_MISTRAL_ARGS) {
        list[n++] = "[CALL_ID]";
    }
    return index < n ? list[index] : NULL;
}
