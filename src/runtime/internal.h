/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the runtime: runtime.c (opening, facts), request.c (life of a request), prepare.c (request -> prompt tokens),
 * guides.c (what an answer may be), answer.c (engine events -> runtime events), embedding.c (how a text becomes a vector),
 * classify.c (or classes), rerank.c (or a score), pictures.c (rows of pictures and sounds in a prompt), dictation.c
 * (models that only write down what is said), adapters.c (which adapters are loaded), infill.c, defaults.c,
 * settings.c (what a model's owner wishes).
 *
 * A request is owned by a counted reference each of whoever still works on it: the preparation thread, and from
 * engine_submit on the engine's events. Lock order: request.order, then runtime.lock, then the engine's own.
 */
#ifndef RUNTIME_INTERNAL_H
#define RUNTIME_INTERNAL_H

#include "base/arena.h"
#include "base/queue.h"
#include "chat/chat.h"
#include "chat/constraint.h"
#include "chat/parser.h"
#include "formats/model_file.h"
#include "nn/model.h"
#include "runtime/adapters.h"
#include "runtime/draft.h"
#include "runtime/head.h"
#include "runtime/runtime.h"
#include "sampling/stop.h"
#include "vision/ears.h"
#include "vision/vision.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct request    request;
typedef struct kept_guide kept_guide; /* guides.c */

enum { EMBEDDING_DENSE = 4 };

typedef struct embedding_prompt {
    const char *name, *text;
} embedding_prompt;

/* How the model makes vectors; see embedding.c. */
typedef struct embedding {
    engine_pooling    pooling;
    bool              skip_prompt; /* the prompt's rows do not count */
    int               longest;     /* tokens of a text; 0: as many as the context holds */
    head_layer        dense[EMBEDDING_DENSE];
    int               n_dense, size, widest; /* size: of the vector; widest: of all between */
    embedding_prompt *prompts, *dflt;        /* dflt NULL: none */
    int               n_prompts;
} embedding;

/* The head of a model that says what a text is, or how well two go together; n_layers 0: it has none. See classify.c. */
typedef struct class_head {
    head_layer     layers[2];
    int            n_layers, n_classes;
    engine_pooling pooling;
    bool           ranks;  /* a pair of texts has a score */
    head_act       act;    /* on that score */
    bool           apart;  /* classes do not exclude each other: a sigmoid on each */
    bool           raw;    /* what comes out is no probability */
    view           labels; /* a JSON array */
    const char    *why;    /* it has one that is not known; NULL: that is not so */
} class_head;

/* What a model needs that writes down what is said and does nothing else; see dictation.c. */
typedef struct dictation {
    bool      known, languages;                              /* the model is such a one; it knows several languages */
    int32_t   begin, before, transcribe, translate, untimed; /* tokens; -1: there is none */
    size_t    words;                                         /* of the masks, which are as engine_guide has them: */
    uint32_t *spoken, *first, *rest;                         /* languages; what may begin a text, and be part of one */
    size_t    n_spoken;
    int32_t   timed, n_timed; /* moments in steps of 20 ms, from this token on; 0: none */
    int32_t   most_first;     /* the last of them that may be the first to be said; -1: any */
} dictation;

/* A sound that is heard in parts. Used by whoever works on the request at the time. */
typedef struct request_heard {
    int           from;     /* samples of parts that were listened to */
    int           at;       /* where the part at hand begins */
    bool          over;     /* that is all of them */
    bool          again;    /* the engine was asked before */
    bool          times;    /* are wanted */
    bool          finding;  /* it says the language of the part at hand, and nothing else */
    bool          more;     /* it is written down, and others follow; guarded by order */
    bool          begun;    /* a word was said; likewise */
    int32_t       language; /* that the model has found; -1: not yet */
    runtime_usage usage;    /* of the parts that are written down */
} request_heard;

/* Settings as requests meet them; what they point at lives with the settings and with the arena that they were made in. */
typedef struct wishes {
    const runtime_settings *settings;
    view                   *stop;
    const json_value       *lead;     /* the messages; NULL: none */
    sampling_params         sampling; /* recommended by the model, with the settings over it */
} wishes;

struct runtime {
    const char       *rank_form; /* asks for "yes" or "no"; NULL: it does not rank so */
    float            *rank_rows; /* of its head: yes, no */
    class_head        classes;
    dictation         dictation;
    embedding         embed;
    model_file       *file;
    model_file       *mmproj;                 /* a file with the tower; NULL: there is none */
    vision           *eyes;                   /* NULL: it does not see */
    ears             *ears;                   /* NULL: it does not hear */
    int32_t           row_token, sound_token; /* what stands for a row of a picture, of a sound; -1: nothing does */
    nn_model         *model;
    draft_files       drafts;
    chat             *chat;
    engine           *engine;
    adapters         *adapters;
    runtime_settings *settings; /* a copy */
    wishes            wishes;   /* of settings */
    sampling_params   sampling; /* recommended by the model */
    sampling_bias    *muted;    /* tokens that the model must not say, by its files */
    size_t            n_muted;
    runtime_info      info;
    tok_ids           markers; /* special tokens that the parser of answers needs to see */
    arena             mem;     /* texts of info */
    pthread_t         settler; /* moves the weights into huge pages */
    atomic_bool       settle_stop;
    bool              settling;

    uint64_t id_seed; /* of the names of tool calls */
    /* The preparation thread's own; see guides.c. */
    grammar_vocab *text_vocab, *marker_vocab; /* built when first needed */
    kept_guide    *kept;
    size_t         n_kept, kept_limit;
    uint64_t       kept_clock;

    queue    *incoming; /* of requests */
    pthread_t thread;   /* prepares */
    bool      started;
    queue    *looking; /* requests with pictures or sounds, before that; NULL: neither eyes nor ears */
    pthread_t looker;
    bool      looks;

    pthread_mutex_t lock; /* guards all below, and refs, links, engine_id, cancelled and paused of every request */
    request        *first, *last;
    uint64_t        next_id;
    bool            closing;
    runtime_stats   stats;
};

/* One answer of a request. Guarded by the request's order. */
typedef struct request_choice {
    request     *owner;
    chat_parser *parser;    /* NULL: text is content as it stands */
    bool         over;      /* its last event was given out */
    bool         finishing; /* the engine has said everything */
    bool         broken;    /* a call that was announced is none, and its text was told as arguments */
    int          tokens, reasoning_tokens;
    /* Stop texts end the content of a parsed answer; thoughts and calls may contain them. */
    stop_matcher *stop;    /* NULL: none, or the engine looks for them */
    str           shown;   /* scratch */
    int           stopped; /* which one was reached; -1: none */
} request_choice;

/* A picture that was looked at, and how its rows stand in it (vision_grid); or a sound that was listened to. */
typedef struct request_picture {
    vision_rows  rows;
    vision_place place;
    bool         sound;
} request_picture;

struct request {
    runtime          *owner;
    request          *next, *prev;
    int               refs;
    uint64_t          id, engine_id; /* engine_id 0: not submitted */
    bool              cancelled, paused;
    bool              only_calls; /* its answers are calls that a grammar holds, and nothing else */
    runtime_request   q;          /* what it points at lives in mem */
    arena             mem;
    pthread_mutex_t   order; /* held while an event is made: they come one after another */
    request_choice   *choices;
    int               n_open;        /* choices whose last event was not given out; guarded by order */
    int               n_unstopped;   /* choices that no stop text has ended; guarded by order */
    int               n_engine_open; /* choices from which the engine has more to say; guarded by order */
    double            submitted_at, prepared_at;
    request_picture  *pictures;    /* one per blob, once they were encoded */
    request_heard     heard;       /* of dictations */
    str               bytes;       /* scratch of TOKEN events; guarded by order */
    bool              owner_stops; /* the stop texts are those of the settings */
    runtime_settings *settings;    /* its own; NULL: the model's */
    wishes            wishes;
    const char      **stop; /* the request's stop texts as the engine and the matchers take them */
    size_t           *stop_bytes;
    runtime_top      *top;
    float        *vector;  /* what the dense layers made of it, twice embed.widest; NULL: the engine's is the result */
    adapters_set *set;     /* NULL: no adapters */
    tok_ids       context; /* of the prompt and of choice 0, with want_context; guarded by order */
    atomic_int    phase, prompt_tokens, generated_tokens;
};

/* request.c */
void request_ref(request *x);
void request_unref(request *x); /* the last one frees */
/* Puts the field's name in front; what is malformed or missing in a request is a mistake of the caller (ERR_ARG). */
int  request_mistake(err *e, int rc, const char *field);
bool request_is_cancelled(request *x);
/* The request is over before the engine took it. */
void request_fail(request *x, const err *why);
void request_end_cancelled(request *x);
void request_emit(request *x, runtime_event *ev); /* order is held; counts choices and sets last */

/* prepare.c */
typedef struct prompt {
    str     text; /* as rendered; empty when the request came as tokens */
    tok_ids ids;
    int32_t marks[CHAT_MARKS];
    size_t  n_marks;
    bool    in_reasoning, reasoning_off; /* as chat_tokens says */
    size_t  pool_from, second;           /* as engine_request says */
} prompt;
/* What a request brings as JSON, parsed once for all who look at it; NULL: nothing of the kind. */
typedef struct trees {
    const json_value *messages, *tools, *variables;
} trees;
/* The tools live in long_lived, the rest in short_lived. Only a CHAT has any. */
int   trees_parse(const runtime_request *q, arena *long_lived, arena *short_lived, trees *out, err *e);
void  prompt_init(prompt *p);
void  prompt_deinit(prompt *p);
int   prompt_make(const runtime *r, const wishes *w, const runtime_request *q, const trees *t, prompt *out, err *e);
void *prepare_main(void *runtime); /* the preparation thread */

/* guides.c: NULL where the answer is free */
/* *calls: tool calls cannot be malformed, only cut off */
int  guides_get(runtime *r, const runtime_request *q, const trees *t, const prompt *p, engine_guide **out, bool *calls,
                err *e);
void guides_close(runtime *r);

/* pictures.c */
char *pictures_find_mmproj(const char *model); /* a path to be freed; NULL: there is none */
/* Neither eyes nor ears: no error. */
int        pictures_open(runtime *r, const runtime_settings *s, const engine_options *g, err *e);
void       pictures_close(runtime *r);
int        pictures_span_tokens(const runtime *r); /* of the longest picture or prompt that sees itself whole */
void      *pictures_main(void *runtime);           /* the thread that looks and listens */
int        pictures_refuse(const runtime *r, const runtime_request *q, err *e); /* what the model does not take */
chat_media pictures_words(const runtime *r, const runtime_request *q);
typedef struct pictures_text {
    const runtime         *owner;
    const runtime_request *q;
} pictures_text;
int pictures_rewrite(void *ctx, str *text, err *e); /* ctx: a pictures_text; for chat_input */
/* Where the rows of x's pictures and sounds are in the prompt; the caller frees the list. */
int pictures_place(const request *x, prompt *p, engine_rows **out, size_t *n_out, err *e);

/* dictation.c */
int dictation_open(runtime *r, err *e); /* other models open, too */
/* found: the language that the model has found; -1: none. */
int dictation_prompt(const runtime *r, const runtime_request *q, const trees *t, int32_t found, prompt *out, err *e);
int dictation_guide(const request *x, const trees *t, const prompt *p, engine_guide **out, err *e);
/* Whether the language must be found by itself: the text that came before must not have a say in it. */
bool dictation_finds(const request *x, const trees *t);
/* Whether the request wants times; then those are marks in the text, "<|1.20|>", behind "<|+27.300|>" for each part. */
bool dictation_times(const runtime *r, const trees *t);
/* The rows of the next part of the request's sound. */
int  dictation_listen(request *x, const sound *s, const ears_stop *stop, const vision_rows **rows, err *e);
void dictation_token(request *x, int32_t token); /* one was said */
/* What a token adds to the text: a moment that nobody asked for nothing. */
view dictation_token_text(const request *x, const engine_event *g);
view dictation_text(request *x, view text); /* without the space with which it begins; all of other models' */
/* A part ended so: whether another one follows; usage becomes that of all so far. False for all other models. */
bool dictation_goes_on(request *x, runtime_finish finish, runtime_usage *usage);

/* infill.c */
bool infill_known(const tok *t);
int  infill_encode(const tok *t, view prefix, view suffix, tok_ids *out, err *e);

/* embedding.c */
int embedding_open(runtime *r, err *e);
/* The prompt that stands before the text; *out NULL: none. */
int embedding_prompt_for(const runtime *r, const runtime_request *q, const embedding_prompt **out, err *e);
int embedding_activation(const char *name, head_act *out, err *e); /* "torch.nn.modules.activation.Tanh" */

/* classify.c; scratch: x->vector */
int classify_open(runtime *r, err *e); /* a model without such a head opens, too */
int classify_prompt(const runtime *r, const runtime_request *q, prompt *out, err *e);
/* Two texts within the request's limit, or the context. */
int          classify_pair(const runtime *r, const runtime_request *q, prompt *out, err *e);
bool         classify_scores(const runtime *r); /* whether the head gives a pair a score */
float        classify_score(const runtime *r, const float *hidden, float *scratch);
const float *classify_probs(const runtime *r, const float *hidden, float *scratch); /* in scratch */

/* rerank.c */
int            rerank_open(runtime *r, err *e); /* a model that cannot rank opens, too */
int            rerank_prompt(const runtime *r, const runtime_request *q, prompt *out, err *e);
float          rerank_score(const runtime *r, const float *hidden, int n, float *scratch); /* scratch: x->vector */
engine_pooling rerank_pooling(const runtime *r);

/* answer.c */
/* The parsers of a chat's answers; they go on looking at the tools. */
int  answer_open(request *x, const trees *t, const prompt *p, bool stream_calls, err *e);
void answer_close(request *x);
void answer_event(void *ctx, const engine_event *ev); /* the engine's callback; ctx is a request */
int  answer_markers(const chat *c, tok_ids *out, err *e);

/* settings.c: keeps a copy and checks it. */
int settings_open(runtime *r, const runtime_settings *s, err *e);
/* Checks and reads settings, which must stay; in mem. */
int settings_read(const runtime *r, const runtime_settings *s, arena *mem, wishes *out, err *e);
/* Fills what the request does not say. */
void settings_fill(const wishes *w, runtime_request *q);
/* The conversation with the owner's system message and leading messages; in a. */
int settings_messages(const wishes *w, const json_value **messages, arena *a, err *e);

/* defaults.c */
void defaults_sampling(sampling_params *out, const model_file *m);
/* Tokens that the model's files forbid (suppress_tokens): reads them; adds them to a request's biases, in mem. */
int defaults_muted(runtime *r, err *e);
int defaults_mute(const runtime *r, sampling_params *p, arena *mem, err *e);
/* What the model was trained with, if the request does not say. */
engine_pooling defaults_pooling(const runtime *r, runtime_pooling own);
/* Fields of own over out. The seed and arrays are left alone. */
void defaults_overlay(sampling_params *out, const sampling_params *own, unsigned set);
/* The request's own fields over the recommended ones. */
int defaults_merge(const wishes *w, const runtime_request *q, sampling_params *out, err *e);

/* draft.c: who drafts, and the draft model; its error names the file. */
int draft_open(runtime *r, const runtime_settings *s, engine_options *g, err *e);
int draft_hint(const runtime *r, const runtime_request *q, tok_ids *out, err *e); /* tokens of the prediction */

#endif
