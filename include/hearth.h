/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public C API of libhearth: language models in your own process.
 *
 * Open a model, fill a request, submit it, read its events. A model answers any number of requests at the same time;
 * what they share (a system prompt, a conversation so far) is computed once.
 *
 *     hearth_error  e;
 *     hearth_model *m = hearth_model_open("demo", NULL, &e);
 *     hearth_request q;
 *     hearth_request_init(&q, sizeof q);
 *     q.messages = "[{\"role\": \"user\", \"content\": \"What is 12 plus 30?\"}]";
 *     hearth_answer *a = hearth_submit(m, &q, &e);
 *     for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;)
 *         if (ev->kind == HEARTH_CONTENT) fwrite(ev->text, 1, ev->text_bytes, stdout);
 *     hearth_answer_free(a);
 *     hearth_model_free(m);
 *
 * Names begin with hearth_. Texts are UTF-8; conversations, tools and schemas are JSON texts as the OpenAI API writes
 * them. Structures that you fill begin with their size, so that a program built against this version works with a later
 * library; always set them up with their init function. Structures that you receive may grow at their end.
 *
 * Threads: a model may be used by any number of threads at once. An answer belongs to one thread at a time, except for
 * hearth_cancel. Nothing is global but the log sink.
 *
 * Errors: a function that can fail takes a hearth_error (NULL: not interested) and returns NULL or a negative
 * hearth_code. The sentence names the file or the field at fault.
 */
#ifndef HEARTH_H
#define HEARTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

/* "MAJOR.MINOR.PATCH" of the library in use. */
HEARTH_API const char *hearth_version(void);

/* --- errors --- */

typedef enum hearth_code {
    HEARTH_OK = 0,
    HEARTH_ERR_NOMEM = -1,       /* memory is out */
    HEARTH_ERR_IO = -2,          /* the system refused: open, read, map */
    HEARTH_ERR_FORMAT = -3,      /* a file is not what it claims to be */
    HEARTH_ERR_UNSUPPORTED = -4, /* understood, but this model or this library cannot do it */
    HEARTH_ERR_ARG = -5,         /* the request is wrong */
    HEARTH_ERR_LIMIT = -6,       /* too long, too many, too deep */
    HEARTH_ERR_NOTFOUND = -7,
    HEARTH_ERR_CANCELLED = -8,
    HEARTH_ERR_BUSY = -9,    /* too many requests wait; it may work later */
    HEARTH_ERR_LOST = -10,   /* the device is gone; another process may get it back */
    HEARTH_ERR_CONTEXT = -11 /* the prompt does not fit the context or the cache */
} hearth_code;

typedef struct hearth_error {
    int  code;
    char text[504];
} hearth_error;

/* --- models --- */

typedef struct hearth_model hearth_model;

typedef struct hearth_model_options {
    size_t   size;        /* of this structure; by hearth_model_options_init */
    int      context;     /* tokens of one conversation; 0: the model's own, or what the cache has room for */
    int      threads;     /* 0: one per core */
    int      max_running; /* requests that compute at once; 0: 16, on a GPU 128 */
    uint64_t cache_bytes; /* for conversations; 0: two full ones */
    const char
            *cache_type; /* how keys and values are kept: "f16" (NULL), "q8_0", "tq4" ..., "auto" (docs/kv-cache.md) */
    uint64_t host_cache_bytes;    /* what the cache has no room for goes to memory; 0: it is forgotten */
    const char *disk_cache_dir;   /* and is kept there, also for the next time; NULL: it is not */
    uint64_t    disk_cache_bytes; /* 0: 8 GiB */
    const char *chat_template;    /* replaces the model's own; NULL: not */
    const char *cache_type_k;     /* of keys, of values, instead of cache_type; NULL: as that */
    const char *cache_type_v;
    int         precise_layers; /* at either end that keep q8_0; 0: two, none in hybrid models; -1: none */
    const char         *
        speculate; /* who guesses ahead, which never changes an answer: "auto" (NULL), "off", "lookup", "draft", "mtp", "eagle" */
    const char *draft;  /* a smaller model with the same vocabulary that guesses; NULL: none */
    const char *mmproj; /* a GGUF file with the model's vision tower; NULL: the one beside the model, if there is one */
} hearth_model_options;

HEARTH_API void hearth_model_options_init(hearth_model_options *o, size_t size);

/* A GGUF file, a model directory, or "demo" for the small model that comes with Hearth. options may be NULL. */
HEARTH_API hearth_model *hearth_model_open(const char *path, const hearth_model_options *options, hearth_error *e);
/* Ends what is under way; every answer must have been freed. Accepts NULL. */
HEARTH_API void hearth_model_free(hearth_model *m);

typedef struct hearth_model_info {
    const char *path, *name, *family, *format, *quantization; /* live as long as the model; never NULL */
    uint64_t    parameters, file_bytes;
    int         context, trained_context, layers, embedding_size, vocabulary;
    int         can_chat, can_use_tools, can_think, can_embed, can_infill; /* 1: yes */
    int         can_rerank, can_generate;                                  /* generate 0: it makes vectors only */
    int         vector_size;                                               /* of an embedding */
    int         can_see, can_hear;                                         /* pictures and sounds in messages */
} hearth_model_info;

/* size: of your structure; what a later library knows beyond it is left out. */
HEARTH_API void hearth_model_describe(const hearth_model *m, hearth_model_info *out, size_t size);

typedef struct hearth_stats {
    uint64_t requests, tokens_evaluated, tokens_cached, tokens_generated, steps;
    int      preparing, waiting, running;
} hearth_stats;

HEARTH_API void hearth_model_stats(hearth_model *m, hearth_stats *out, size_t size);

/* --- requests --- */

typedef enum hearth_task {
    HEARTH_TASK_CHAT = 0,     /* messages */
    HEARTH_TASK_COMPLETE = 1, /* text or tokens go on, without a chat template */
    HEARTH_TASK_INFILL = 2,   /* what stands between text and suffix */
    HEARTH_TASK_EMBED = 3,    /* text or tokens -> a vector */
    HEARTH_TASK_RERANK = 4    /* how well suffix, a document, answers text, a query -> a score */
} hearth_task;

typedef enum hearth_tool_choice {
    HEARTH_TOOLS_AUTO = 0,
    HEARTH_TOOLS_NONE = 1,
    HEARTH_TOOLS_REQUIRED = 2, /* at least one call */
    HEARTH_TOOLS_NAMED = 3     /* a call of tool_name */
} hearth_tool_choice;

typedef enum hearth_thinking {
    HEARTH_THINK_DEFAULT = 0, /* as the model's template does by itself */
    HEARTH_THINK_ON = 1,
    HEARTH_THINK_OFF = 2
} hearth_thinking;

/* The answer has this shape, whatever the model would have liked to say. Thoughts before it are free. */
typedef enum hearth_constraint {
    HEARTH_FREE = 0,
    HEARTH_JSON = 1,    /* any JSON object */
    HEARTH_SCHEMA = 2,  /* constraint_text: a JSON Schema */
    HEARTH_REGEX = 3,   /* constraint_text: a regular expression for the whole answer */
    HEARTH_GRAMMAR = 4, /* constraint_text: a GBNF grammar */
    HEARTH_ONE_OF = 5   /* constraint_text: a JSON array of strings */
} hearth_constraint;

typedef enum hearth_pooling {
    HEARTH_POOL_DEFAULT = 0,
    HEARTH_POOL_MEAN = 1,
    HEARTH_POOL_CLS = 2,
    HEARTH_POOL_LAST = 3,
    HEARTH_POOL_MAX = 4
} hearth_pooling;

/* A number that you do not choose: the model's recommendation, then Hearth's default. */
#define HEARTH_UNSET (-2147483647 - 1)

typedef struct hearth_event hearth_event;

/* A fine-tune beside the model: LoRA, DoRA or IA3 as a directory of PEFT or MLX or as a GGUF file. */
typedef struct hearth_adapter {
    const char *path;
    double      scale; /* how strongly it counts: 1 as it was trained, 0 not at all */
} hearth_adapter;

/* A picture: rows from the top, three bytes (red, green, blue) per pixel, no padding between rows. Decoding files is the
 * caller's, as it is the server's to do it in a process of its own. */
typedef struct hearth_picture {
    int         width, height;
    const void *rgb; /* width * height * 3 bytes */
} hearth_picture;

/* A sound: one channel, values around -1 to 1. Decoding files is the caller's, as for pictures. */
typedef struct hearth_sound {
    const float *samples;
    size_t       n;
    int          rate; /* samples a second: 4000 to 192000 */
    size_t blob; /* its number among pictures and sounds together: pictures have those that are left, in their order */
} hearth_sound;

/* Texts end with a NUL; everything is copied by hearth_submit. */
typedef struct hearth_request {
    size_t size; /* of this structure; by hearth_request_init */
    int    task; /* hearth_task */

    /* CHAT */
    const char *messages; /* [{"role": "user", "content": "..."}, ...] */
    const char *tools;    /* [{"type": "function", "function": {"name", "description", "parameters"}}]; NULL: none */
    const char *template_vars; /* a JSON object of further variables for the chat template; NULL: none */
    int         continue_last; /* 1: the last message is not over, go on with it */
    int         tool_choice;   /* hearth_tool_choice */
    const char *tool_name;
    int         one_tool_call;   /* 1: at most one call in an answer */
    int         thinking;        /* hearth_thinking */
    int         thinking_budget; /* tokens, then the answer begins; HEARTH_UNSET: no limit */
    const char *effort;          /* "low", "medium", "high"; NULL: not said */

    /* COMPLETE, INFILL, EMBED, RERANK */
    const char    *text, *suffix;
    const int32_t *tokens; /* instead of text */
    size_t         n_tokens;
    int            pooling;    /* hearth_pooling */
    int            dimensions; /* of the vector; 0: all */

    int         constraint; /* hearth_constraint */
    const char *constraint_text;

    /* How the answer is drawn: HEARTH_UNSET or a value. temperature 0: always the likeliest token. */
    float   temperature, top_p, min_p, typical_p;
    int     top_k;
    float   repeat_penalty, frequency_penalty, presence_penalty;
    int64_t seed; /* HEARTH_UNSET or -1: a random one */

    int                max_tokens; /* 0: until the context is full */
    const char *const *stop;       /* texts that end the answer */
    size_t             n_stop;
    int                n_answers; /* choices 0 .. n - 1, with following seeds; 0: 1 */
    int                priority;  /* higher goes first */
    int                logprobs;  /* 1: HEARTH_TOKEN events */
    int                top_logprobs;
    int                progress; /* 1: HEARTH_PROGRESS events */

    /* NULL: read events with hearth_next. Else they come to this function, from a thread of the library: it must
     * not block, must copy what it keeps, and of this API may call only hearth_cancel. */
    void (*on_event)(void *context, const hearth_event *ev);
    void *context;

    /* EMBED: the model's prompt of this name stands before the text; NULL: its default one. prompt_side 1: it names a
     * side of a search, "query" or "document", and a model without such a prompt needs none. */
    const char *prompt_name;
    int         prompt_side;

    /* Adapters that this request uses, in this order; at most 8. A file is read when it is first named and kept while
     * there is room; one that was replaced is read again. */
    const hearth_adapter *adapters;
    size_t                n_adapters;

    /* CHAT: the pictures of the conversation, at most 32. A part {"type": "image", "blob": N} of a message's content stands
     * for picture N, counted from 0; numbers rise in the order of the parts. */
    const hearth_picture *pictures;
    size_t                n_pictures;

    /* CHAT: its sounds, by rising numbers, for parts {"type": "audio", "blob": N}. 32 pictures and sounds at most. */
    const hearth_sound *sounds;
    size_t              n_sounds;
} hearth_request;

HEARTH_API void hearth_request_init(hearth_request *q, size_t size);

/* --- answers --- */

typedef enum hearth_event_kind {
    HEARTH_STARTED = 0,        /* prompt_tokens */
    HEARTH_PROGRESS = 1,       /* done of prompt_tokens */
    HEARTH_TOKEN = 2,          /* token, logprob, top; comes before the text that it made */
    HEARTH_CONTENT = 3,        /* text */
    HEARTH_REASONING = 4,      /* text */
    HEARTH_TOOL_BEGIN = 5,     /* call, id, name */
    HEARTH_TOOL_ARGUMENTS = 6, /* call, text: a piece of a JSON object */
    HEARTH_TOOL_END = 7,       /* call; without it the call was cut off, and its arguments begin a JSON object */
    HEARTH_EMBEDDING = 8,      /* vector */
    HEARTH_DONE = 9,           /* the last event of a choice: finish, counts, seconds */
    HEARTH_FAILED = 10,        /* the last event of a choice, or of the request (choice -1): code, text */
    HEARTH_SCORE = 11          /* score */
} hearth_event_kind;

typedef enum hearth_finish {
    HEARTH_FINISH_STOP = 0,       /* the model ended its answer */
    HEARTH_FINISH_STOP_TEXT = 1,  /* stop[stop_index] */
    HEARTH_FINISH_LENGTH = 2,     /* max_tokens, or the context is full */
    HEARTH_FINISH_TOOL_CALLS = 3, /* it waits for the results of its calls */
    HEARTH_FINISH_CANCELLED = 4
} hearth_finish;

typedef struct hearth_top {
    int32_t     token;
    float       logprob;
    const char *bytes;
    size_t      n_bytes;
} hearth_top;

/* Texts are UTF-8 and NUL-terminated; text_bytes counts without the NUL. */
struct hearth_event {
    int         kind; /* hearth_event_kind */
    int         choice;
    int         last; /* 1: the very last event of the request */
    const char *text;
    size_t      text_bytes;

    int         call; /* TOOL_*: which one, from 0 */
    const char *id, *name;

    int prompt_tokens, done;

    int32_t           token;
    float             logprob;
    const char       *bytes; /* of the token; need not be whole characters */
    size_t            n_bytes;
    const hearth_top *top;
    int               n_top;

    const float *vector;
    int          n_vector;

    int    finish; /* hearth_finish */
    int    stop_index;
    int    cached_tokens, generated_tokens, reasoning_tokens;
    double wait_seconds, prompt_seconds, generate_seconds;
    int    code; /* hearth_code of FAILED */

    float score;
};

typedef struct hearth_answer hearth_answer;

/* Returns at once. A mistake in the request may also arrive later, as its only event (FAILED). */
HEARTH_API hearth_answer *hearth_submit(hearth_model *m, const hearth_request *q, hearth_error *e);

/* The next event, valid until the next call on this answer. Waits up to timeout_ms (negative: as long as it takes).
 * NULL: none came in time, or the last one was given out; hearth_answer_over tells which. Not with on_event. */
HEARTH_API const hearth_event *hearth_next(hearth_answer *a, int timeout_ms);
/* 1: the last event was given out (with on_event: its callback has returned). */
HEARTH_API int hearth_answer_over(hearth_answer *a);
/* Waits until it is over. With hearth_next: events that were not read are dropped. */
HEARTH_API void hearth_answer_wait(hearth_answer *a);
/* The answer ends soon, with HEARTH_FINISH_CANCELLED. From any thread, also from on_event. */
HEARTH_API void hearth_cancel(hearth_answer *a);
/* Cancels if need be and waits for the last event. Not from on_event. Accepts NULL. */
HEARTH_API void hearth_answer_free(hearth_answer *a);

/* --- texts and tokens; without waiting for anything --- */

/* Returns the number of tokens, at most cap of which were written to out; negative: a hearth_code. special: put the
 * model's begin and end tokens around it and recognise the texts of special tokens. */
HEARTH_API int64_t hearth_tokenize(const hearth_model *m, const char *text, size_t bytes, int special, int32_t *out,
                                   size_t cap, hearth_error *e);
/* The text of tokens; release it with hearth_text_free. */
HEARTH_API char *hearth_detokenize(const hearth_model *m, const int32_t *tokens, size_t n, int special,
                                   hearth_error *e);
/* The prompt of a request as the model will see it; release it with hearth_text_free. */
HEARTH_API char *hearth_render(const hearth_model *m, const hearth_request *q, hearth_error *e);
/* How many tokens that prompt has; negative: a hearth_code. */
HEARTH_API int64_t hearth_count(const hearth_model *m, const hearth_request *q, hearth_error *e);
HEARTH_API void    hearth_text_free(char *text);

/* --- the log --- */

typedef enum hearth_log_level {
    HEARTH_LOG_DEBUG = 0,
    HEARTH_LOG_INFO = 1,
    HEARTH_LOG_WARN = 2,
    HEARTH_LOG_ERROR = 3,
    HEARTH_LOG_OFF = 4
} hearth_log_level;

/* For the whole process; call it before anything else. Without it the library says nothing. */
HEARTH_API void hearth_log(void (*sink)(void *context, int level, const char *module, const char *message),
                           void *context, int level);

#ifdef __cplusplus
}
#endif

#endif
