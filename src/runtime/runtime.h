/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One opened model: complete requests in, events out.
 *
 * A runtime holds everything that belongs to a model: the mapped file, tokenizer and template, the engine with its
 * cache, compiled grammars. A request is plain data (text is UTF-8, structures travel as JSON text), so that it can
 * cross a process border; runtime_submit copies it and returns at once. Templating, tokenizing and compiling grammars
 * happen on the runtime's own preparation thread, never on the caller's or the engine's.
 *
 * Events of a request come one after another from an internal thread. A callback must not block, must copy what it
 * keeps, and may call runtime_cancel, runtime_pause and runtime_resume but no other function here. Exactly one event
 * has `last` set; after that callback has returned nothing of the request is touched any more. A mistake in the request
 * is that one event alone: an ERROR with a code such as ERR_ARG and a sentence that names the field, before any
 * STARTED.
 */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include "base/err.h"
#include "base/str.h"
#include "engine/engine.h"
#include "params/sampling_table.h"
#include "sampling/sampling.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct runtime runtime;

/* An adapter: a GGUF file or a directory of PEFT or MLX (nn/adapter.h), and how strongly it counts. */
typedef struct runtime_lora {
    view   path;
    double scale;
} runtime_lora;

enum { RUNTIME_MAX_LORA = 8 };

/*
 * What a model's owner wishes for it, under what a request says itself. Plain data without handles: it crosses a
 * process border. All zero: no wishes. runtime_open copies it.
 */
typedef struct runtime_settings {
    const char         *system;   /* the system message of chats that bring none; NULL: none */
    const char         *messages; /* a JSON array that stands before every chat, behind its system messages; NULL */
    const char         *template_text; /* replaces the model's chat template; NULL: its own */
    sampling_params     sampling;      /* over what the model recommends; its arrays are not used */
    unsigned            sampling_set;  /* RUNTIME_SET_*; without SEED every request draws another one */
    const char *const  *stop;          /* for requests that bring none */
    size_t              n_stop;
    int                 max_tokens, min_tokens; /* likewise; 0: none */
    int                 n_ctx;                  /* instead of the engine's option; 0: that one */
    const char         *rope_type;              /* "none", "linear" or "yarn" instead of the model's own rule; NULL */
    double              rope_factor;
    int                 rope_original_context; /* 0: as the model says */
    const runtime_lora *lora;                  /* adapters of requests that name none; at most RUNTIME_MAX_LORA */
    size_t              n_lora;
    const char         *mmproj; /* a GGUF file with the model's eyes; NULL: the one beside the model, if there is one */
    bool                mmproj_may_fail; /* eyes that cannot be opened are no reason not to open the model */
    const char         *speculate;    /* a name for runtime_speculate instead of the engine's option; NULL: that one */
    const char         *draft;        /* path of a smaller model with the same vocabulary, or of a head; NULL: none */
    int                 draft_max;    /* tokens of one draft; 0: the engine's */
    const char         *adapter_type; /* how adapters are kept, "auto", "f32", "f16" or "q8"; NULL: auto */
    const char         *page_type, *page_type_k, *page_type_v; /* for runtime_cache_types; all NULL: the engine's */
    int                 precise_layers;                        /* with page types, as in engine_options */
} runtime_settings;

/* A copy that owns its texts; NULL: out of memory. */
runtime_settings *runtime_settings_copy(const runtime_settings *s);
void              runtime_settings_free(runtime_settings *s); /* of a copy; accepts NULL */

typedef struct runtime_options {
    const char        *path;          /* a GGUF file or a model directory */
    const char        *template_text; /* replaces the model's chat template and that of settings; NULL: theirs */
    engine_options     engine;        /* cpu 0: all the machine has */
    runtime_settings   settings;
    int                max_preparing; /* requests between submit and the engine; 0: 256 */
    size_t             grammar_bytes; /* of compiled grammars that are kept; 0: 256 MiB */
    size_t             adapter_bytes; /* of adapters that are loaded; 0: 1 GiB */
    const char        *adapter_dir;   /* whose adapters requests may name later: a worker can read it; NULL: none */
    const char *const *adapter_paths; /* further ones that it can read */
    size_t             n_adapter_paths;
    uint64_t spare_bytes; /* of memory; where the weights fit twice, they move into huge pages (a tenth faster),
                                     in the background; 0: they stay where the file is mapped */

    /* How far runtime_open has come, 0 to 1, from the thread that called it; NULL: nobody asks. */
    void (*on_progress)(void *ctx, float fraction);
    void *progress_ctx;

    /* How much memory the loaded adapters take now, whenever that has changed; from a thread that must not be kept. NULL:
     * nobody asks. */
    void (*on_adapters)(void *ctx, uint64_t bytes);
    void *adapters_ctx;
} runtime_options;

/* The file with the eyes of a GGUF model that lies beside it (its name has "mmproj" in it); NULL: none does. To be freed. */
char *runtime_find_mmproj(const char *path);

/* Sets the page types of keys and values by name: both ("f16", "q8_0", ...; "auto": kv_auto; NULL: f16), k and v instead
 * of it for one side (NULL: as both). */
int runtime_cache_types(const char *both, const char *k, const char *v, engine_options *o, err *e);

/* The page types that a model's settings ask for, if any. */
int runtime_settings_pages(const runtime_settings *s, engine_options *o, err *e);

/* "off", "auto", "lookup", "draft", "mtp", "eagle". */
int runtime_speculate(const char *name, engine_speculate *out, err *e);
/* Who drafts then: "lookup, draft"; "": nobody. */
/* The file with a model's head for further tokens: mtp-NAME.gguf beside NAME.gguf. NULL: none; else the caller frees it. */
char       *runtime_find_head(const char *path);
const char *runtime_drafters(engine_speculate s, bool has_draft, bool has_next);

/* The model may be read by any thread until runtime_free. */
int  runtime_open(runtime **out, const runtime_options *o, err *e);
void runtime_free(runtime *r); /* cancels what is under way and waits for its events; accepts NULL */

/* Texts live as long as the runtime. */
typedef struct runtime_info {
    const char *path, *name, *family; /* name: general.name of the file, or "" */
    const char *format;               /* "GGUF", "Hugging Face", "MLX" */
    const char *quant;                /* the file's mix, or the type of most of its weights: "Q4_K_M" */
    uint64_t    n_params, file_bytes;
    int         n_ctx, n_ctx_train, n_layer, n_embd;
    int         n_seqs;   /* that compute at once */
    int         n_vector; /* floats of an embedding */
    int64_t     n_vocab;
    bool        can_chat, can_tools, can_think, can_embed, can_infill, can_rerank, can_generate;
    bool        can_see;         /* pictures in messages */
    bool        can_hear;        /* sounds in messages */
    const char *template_text;   /* NULL: none */
    const char *template_origin; /* "tokenizer.chat_template", "built-in chatml", ...; NULL: none */
    const char *drafters;        /* "lookup, draft"; "": nobody drafts */
} runtime_info;
void runtime_describe(const runtime *r, runtime_info *out);

/* What a request gets when it sets nothing: the settings, generation_config.json or general.sampling.* of the file,
 * ours. */
void runtime_sampling(const runtime *r, sampling_params *out);

/* --- requests --- */

typedef enum runtime_task {
    RUNTIME_CHAT,     /* messages */
    RUNTIME_COMPLETE, /* text or tokens go on; no template */
    RUNTIME_INFILL,   /* what stands between text and suffix */
    RUNTIME_EMBED,    /* text or tokens -> one vector */
    RUNTIME_RERANK,   /* text is the query, suffix the document -> one score */
    RUNTIME_CLASSIFY, /* text, or text and suffix as a pair, or tokens -> a number for each class */
} runtime_task;

typedef enum runtime_tool_choice {
    RUNTIME_TOOLS_AUTO,
    RUNTIME_TOOLS_NONE,
    RUNTIME_TOOLS_REQUIRED,
    RUNTIME_TOOLS_NAMED, /* tool_name */
} runtime_tool_choice;

typedef enum runtime_thinking {
    RUNTIME_THINK_DEFAULT,
    RUNTIME_THINK_ON, /* an error where the model marks no thoughts */
    RUNTIME_THINK_OFF,
    RUNTIME_THINK_WISH, /* on where it does */
} runtime_thinking;

typedef enum runtime_constraint_kind {
    RUNTIME_FREE,
    RUNTIME_JSON,    /* any JSON object */
    RUNTIME_SCHEMA,  /* text: a JSON Schema */
    RUNTIME_REGEX,   /* text: a regular expression for the whole answer */
    RUNTIME_GBNF,    /* text: a grammar with the rule root */
    RUNTIME_CHOICES, /* text: a JSON array of strings */
} runtime_constraint_kind;

typedef struct runtime_constraint {
    runtime_constraint_kind kind;
    view                    text;
} runtime_constraint;

typedef enum runtime_pooling {
    RUNTIME_POOL_DEFAULT,
    RUNTIME_POOL_MEAN,
    RUNTIME_POOL_CLS,
    RUNTIME_POOL_LAST,
    RUNTIME_POOL_MAX
} runtime_pooling;

/* Which fields of sampling the caller chose; the others come from runtime_sampling (a missing seed: a random one). */
enum {
    RUNTIME_SET_TEMPERATURE = 1 << 0, /* with dynatemp */
    RUNTIME_SET_TOP_K = 1 << 1,
    RUNTIME_SET_TOP_P = 1 << 2,
    RUNTIME_SET_MIN_P = 1 << 3,
    RUNTIME_SET_TYPICAL_P = 1 << 4,
    RUNTIME_SET_TOP_N_SIGMA = 1 << 5,
    RUNTIME_SET_XTC = 1 << 6, /* both fields */
    RUNTIME_SET_REPEAT_LAST_N = 1 << 7,
    RUNTIME_SET_REPEAT_PENALTY = 1 << 8,
    RUNTIME_SET_FREQUENCY_PENALTY = 1 << 9,
    RUNTIME_SET_PRESENCE_PENALTY = 1 << 10,
    RUNTIME_SET_DRY = 1 << 11,      /* all fields */
    RUNTIME_SET_MIROSTAT = 1 << 12, /* all fields */
    RUNTIME_SET_SEED = 1 << 13,
    RUNTIME_SET_ORDER = 1 << 14,
    RUNTIME_SET_ALL = (1 << 15) - 1,
    RUNTIME_SET_DYNATEMP = 1 << 15, /* without the temperature itself */
};

/* The bit above that belongs to a parameter. */
extern const unsigned runtime_set_bits[SAMPLING_PARAM_COUNT];

enum { RUNTIME_MAX_BLOBS = 32 };
#define RUNTIME_MAX_BLOB_BYTES ((uint64_t)128 << 20)

typedef struct runtime_event runtime_event;

/* Fill with runtime_request_init, then change. Everything it points at is copied by runtime_submit. */
typedef struct runtime_request {
    runtime_task task;

    /* CHAT. Messages as OpenAI writes them: role, content (text or parts), tool_calls, tool_call_id,
     * reasoning_content; tools: an array of {"type": "function", "function": {name, description, parameters}}. */
    view messages, tools; /* JSON arrays; tools may be empty */
    view template_vars;   /* a JSON object of further template variables, or empty */
    view template_text;   /* Jinja, instead of the model's own; or empty */
    bool continue_final;  /* the last message is not over: go on with it */
    /* The words that are said in the one sound of the messages, asked for as the model was taught; template_vars has
     * "language" (ISO 639-1) and "prompt", a text that helps. Models that were taught no such thing refuse it. */
    bool transcribe;

    /* COMPLETE, INFILL, EMBED, RERANK: text, or tokens where n_tokens is not 0 (COMPLETE, EMBED and CLASSIFY). CHAT: tokens stand
     * in front of the prompt that the messages make. */
    view           text, suffix;
    const int32_t *tokens;
    size_t         n_tokens;
    bool           echo; /* COMPLETE: the prompt's text is the first CONTENT of every choice; with log-probabilities
                            there are TOKEN events for its tokens, the first of which has none */
    bool           no_answer; /* COMPLETE: it ends behind the prompt */

    runtime_tool_choice tool_choice;
    view                tool_name;
    bool                parallel_tools; /* more than one call in an answer; default true */
    /* Calls that are held to their grammar are announced when their name is known, and their arguments come in pieces
     * while they are written; else when they are complete. What is told in the end is the same. */
    bool stream_calls;

    runtime_thinking thinking;
    view             effort;          /* "low", "medium", "high" or empty */
    int              thinking_budget; /* tokens; -1: none */
    bool             raw_answer;      /* CHAT: everything is CONTENT as the model wrote it, markers included */

    runtime_constraint constraint;
    bool full_json; /* JSON of schemas and of calls: all of its texts, not the part that models are steered to */

    sampling_params sampling;
    unsigned        sampling_set; /* RUNTIME_SET_*; bias needs no bit */
    const view     *dry_breakers; /* texts; with RUNTIME_SET_DRY. Every token that contains one is a breaker */
    size_t          n_dry_breakers;

    int         max_tokens, min_tokens; /* max 0: until the context is full */
    int         n_ctx;                  /* positions of prompt and answer; 0, or more than the model's: the model's */
    bool        pair;                   /* CLASSIFY: text and suffix are one input */
    bool        truncate;               /* EMBED, CLASSIFY: too long a text is cut; else it is an error */
    bool        want_context;           /* DONE tells the tokens of prompt and answer */
    bool        ignore_eos;
    const view *stop;
    size_t      n_stop;
    int         n_choices; /* 0: 1 */
    int         priority;  /* higher goes first */
    uint64_t    client;    /* for a fair share between clients; 0: anonymous */
    bool        want_logprob;
    int         n_top; /* at most 20 */
    bool        no_cache;
    bool        want_progress;
    bool        no_drafts; /* nobody drafts for it */
    int         draft_max; /* tokens of one draft; 0: the model's */
    int         draft_min; /* fewer are left out (engine_request) */
    float       draft_p_min;
    view        prediction; /* what the answer may look like: drafts are taken from it. Empty: nothing */

    const runtime_lora *lora; /* adapters, in this order; at most RUNTIME_MAX_LORA */
    size_t              n_lora;
    bool                own_lora; /* these alone, even none; else those of the settings where n_lora is 0 */
    /* Wishes instead of those that the model was opened with: several names share it. Of these, system, messages,
     * sampling, stop, max_tokens, min_tokens and lora count. NULL: the model's own. */
    const runtime_settings *settings;

    runtime_pooling pooling;
    int             dimensions;  /* EMBED: the first that many, normalised again; 0: all */
    view            prompt_name; /* EMBED: the model's prompt that stands before the text; empty: its default */
    bool
        prompt_is_side; /* it names a side of a search ("query", "document"): a model without such a prompt needs none */

    /* Pictures, decoded, as pixels_view reads them, and sounds as sound_read does. A part {"type": "image", "blob": N} or
     * {"type": "audio", "blob": N} of a message's content names one by its index; indexes rise in the order of the parts. At most RUNTIME_MAX_BLOBS, RUNTIME_MAX_BLOB_BYTES together. */
    const view *blobs;
    size_t      n_blobs;

    void (*on_event)(void *ctx, const runtime_event *ev);
    void *ctx;
} runtime_request;

void runtime_request_init(runtime_request *q);

/* --- events --- */

typedef enum runtime_event_kind {
    RUNTIME_STARTED,        /* the prompt is ready and the engine has taken it: prompt_tokens */
    RUNTIME_PROGRESS,       /* only if wanted: done of total prompt tokens, of which cached were known */
    RUNTIME_TOKEN,          /* only if logprobs were asked for; comes before the text that it made */
    RUNTIME_CONTENT,        /* text */
    RUNTIME_REASONING,      /* text */
    RUNTIME_TOOL_BEGIN,     /* index, id, name */
    RUNTIME_TOOL_ARGUMENTS, /* index, text: a piece of JSON */
    RUNTIME_TOOL_END,       /* index; a call without it was cut off, and its arguments begin a JSON object */
    RUNTIME_EMBEDDING,      /* vector */
    RUNTIME_SCORE,          /* score */
    RUNTIME_CLASSES,        /* vector: of each class; text: their names, a JSON array */
    RUNTIME_DONE,           /* the last event of a choice: finish, usage */
    RUNTIME_ERROR,          /* the last event of a choice, or of the request (choice -1): error */
} runtime_event_kind;

typedef enum runtime_finish {
    RUNTIME_STOP,        /* the model ended its answer */
    RUNTIME_STOP_STRING, /* stop_index; -1: one of the settings */
    RUNTIME_LENGTH,      /* max_tokens, or the context is full */
    RUNTIME_TOOL_CALLS,
    RUNTIME_CANCELLED,
} runtime_finish;

typedef struct runtime_usage {
    int    prompt_tokens, cached_tokens, generated_tokens, reasoning_tokens;
    int    drafted_tokens, accepted_tokens; /* accepted: generated ones that were drafted */
    bool   predicted;                       /* the request had a prediction */
    double prepare_s, queued_s, prompt_s, generate_s;
} runtime_usage;

typedef struct runtime_top {
    int32_t token;
    float   logprob;
    view    bytes; /* need not be valid UTF-8 */
} runtime_top;

/* Valid during the callback only. */
struct runtime_event {
    runtime_event_kind kind;
    int                choice;
    bool               last; /* of the whole request */
    view               text;
    int                index;         /* TOOL_*: which call */
    view               id, name;      /* TOOL_BEGIN */
    int                prompt_tokens; /* STARTED */
    int                done, total, cached;
    bool               of_prompt; /* TOKEN: of an echoed prompt */
    int32_t            token;     /* TOKEN */
    float              logprob;
    view               bytes; /* TOKEN: what it stands for */
    const runtime_top *top;
    int                n_top;
    const float       *vector; /* EMBEDDING, CLASSES */
    int                n_vector;
    float              score;
    runtime_finish     finish;
    int                stop_index;
    runtime_usage      usage;
    const int32_t     *context; /* DONE, if wanted; without the token that ended the answer */
    size_t             n_context;
    const err         *error;
};

/* On success the events will come and *id names the request; on failure none comes. ERR_BUSY: too many wait. */
int  runtime_submit(runtime *r, const runtime_request *q, uint64_t *id, err *e);
void runtime_cancel(runtime *r, uint64_t id); /* in any phase; unknown ids are ignored */
/* A paused request stops before the engine's next step and goes on where it was; events that were made before still
 * come. The same in any phase, and from any thread; pauses are not counted. */
void runtime_pause(runtime *r, uint64_t id);
void runtime_resume(runtime *r, uint64_t id);

/* --- without the engine; from any thread --- */

/* Appends. add_special: the begin and end tokens of the model; parse_special: their texts are recognised. */
int runtime_tokenize(const runtime *r, view text, bool add_special, bool parse_special, tok_ids *out, err *e);
int runtime_detokenize(const runtime *r, const int32_t *tokens, size_t n, bool keep_special, str *out, err *e);
/* The prompt of a CHAT, COMPLETE or INFILL request as text (appended), and how many tokens it has. */
int runtime_render(const runtime *r, const runtime_request *q, str *out, err *e);
int runtime_count(const runtime *r, const runtime_request *q, size_t *out, err *e);

/* --- what is going on --- */

typedef struct runtime_stats {
    engine_stats engine;
    int          preparing; /* requests that are not in the engine yet */
    uint64_t     requests, errors, cancelled;
    uint64_t     grammar_hits, grammar_misses;
    int          grammars; /* kept */
    int          adapters; /* loaded */
    uint64_t     adapter_bytes;
} runtime_stats;
void runtime_stat(runtime *r, runtime_stats *out);

typedef enum runtime_phase { RUNTIME_PREPARING, RUNTIME_WAITING, RUNTIME_GENERATING } runtime_phase;

typedef struct runtime_request_info {
    uint64_t      id, client;
    runtime_task  task;
    runtime_phase phase;
    int           prompt_tokens, generated_tokens;
    double        age_s;
} runtime_request_info;
/* Fills at most cap of them, oldest first; returns how many there are. */
size_t runtime_requests(runtime *r, runtime_request_info *out, size_t cap);

#endif
