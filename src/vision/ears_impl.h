/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside a model's ears. What all have in common: ears.c (opening, words, rows that are kept) and ears_rules.c (which
 * family it is, and what the files say). A family is a table, ears_family, in a file of its own: ears_whisper.c (the
 * encoders that are Whisper's), ears_qwen3.c, ears_gemma3n.c, ears_gemma4.c, ears_samples.c. A new one is such a table and
 * a line in ears_rules.c.
 */
#ifndef VISION_EARS_IMPL_H
#define VISION_EARS_IMPL_H

#include "vision/ears.h"
#include "vision/internal.h"
#include "vision/mel.h"

/* How a sound is prepared; part of the key of its rows, so that there is nothing between its fields. */
typedef struct ears_rules {
    int mels, positions; /* bins of a frame, or its samples where there is no spectrum; rows of the tower for a piece */
    int stack;           /* of these, how many become a row of the language model */
    int table;           /* positions that the file has */
    int chunk, window;   /* Qwen 3: frames that are convolved together; places that see each other */
    int least, padded;   /* Qwen 3: samples that a sound has at least; the last chunk is as long as all */
    int every, tokens;   /* Gemma 3n: of so many places one is a row; rows of a piece */
    int turned, theta;   /* Music Flamingo: elements that turn by one of two times; the base of their frequencies */
    int pad, end;        /* words of its own table: for rows that are missing, behind the last one */
} ears_rules;

/* The stages that a sound goes through; not every family has all. */
enum { EARS_CONV0, EARS_CONV1, EARS_CONV2, EARS_WORDS, EARS_TOWER, EARS_NORM, EARS_PROJECTOR, EARS_STAGES };

/* A field of preprocessor_config.json that has this value where it is there. */
typedef struct ears_field {
    const char *name;
    double      is;
} ears_field;

typedef struct ears_family {
    const char *const *types;             /* model_type; ends with NULL */
    const char *const *projectors;        /* of mmproj files; ends with NULL */
    const char        *word;              /* what a template prints for a sound, and what stands for a row */
    const char *const *words;             /* others for it where the vocabulary lacks it; NULL: there are none */
    const char        *said;              /* the word with what templates print around it; NULL: nothing */
    const char        *transcribes;       /* a template for the words of a sound (ears.h), or NULL */
    const char        *before, *after;    /* what stands around the rows, and no template prints */
    const nn_arch     *arch[EARS_STAGES]; /* NULL: there is no such stage */
    const ears_field  *front;             /* n_front fields; feature_size is the bins, too */
    size_t             n_front;
    unsigned           how;    /* the family's own */
    bool               alone;  /* its mmproj files have no eyes: others with this projector do */
    bool               flat;   /* the encoder's fields stand in config.json itself, beside the decoder's */
    bool               single; /* a piece is all that the language model hears at once */
    bool               ragged; /* the last row of a piece may have fewer places than others */
    /* The sizes; what makes no sense is refused behind it. config: as source_outer, whose audio_config is the encoder's;
     * or NULL. */
    void (*read)(ears_rules *r, const json_value *config, const model_file *mmproj);
    int most; /* positions, where those of a piece all see each other; 0: as ears_rules.c has it */
    int (*stage_rows)(const ears_rules *r, int stage); /* that a stage takes at once */
    bool (*fit)(const ears *h); /* whether stages before the projector fit each other; NULL: there are none */
    int64_t (*rows)(const ears_rules *r, int n_samples);
    int (*encode)(ears *h, const sound *s, float *out, err *e); /* out has room for the rows */
    /* The spectrum that it begins with: of all of a sound, or of its first piece. NULL: it begins with samples. */
    int (*spectrum)(mel *out, const ears_rules *r, const sound *s, int bins, err *e);
} ears_family;

struct ears {
    const ears_family *family;
    const char        *word;    /* the family's, or one of its others, */
    int                n_words; /* of which so many were given up */
    ears_rules         rules;
    vision_stage       stage[EARS_STAGES];
    uint8_t            source[VISION_KEY_BYTES]; /* what the tower's file hashes to */
    vision_keep        keep;
    int                parts; /* of a row, the first of which is ours */
    const ears_stop   *stop;  /* of the sound at hand; NULL: there is none */
};

/* The stage whose rows the language model gets. */
static inline const vision_stage *ears_last(const ears *h) {
    return &h->stage[h->family->arch[EARS_PROJECTOR] ? EARS_PROJECTOR : EARS_TOWER];
}

/* ears.c: asked by encode before each piece; 0, or ERR_CANCELLED. */
int ears_go_on(const ears *h, err *e);

/* ears_conv.c */
enum { CONV_STRIDE = 2 };
/* [rows][pitches][channels], of which there are `rows` from row `base` on. A kernel's taps are ordered by time, or by
 * pitch. */
typedef struct conv_input {
    const float *from;
    int          base, rows, pitches, channels;
    bool         pitch_first;
    bool         ahead; /* a place sees the two rows behind its own, not one before and one behind it */
} conv_input;
int conv_half(int n); /* places of a line that are left */
/* What the places of n rows from `first` on see. */
void conv_put(const conv_input *s, int first, int n, float *to);

/* ears_whisper.c: the position of a place, which the file has or which is made of sines. */
void ears_put_position(float *to, const nn_ears_top *top, int at, size_t width);

/* ears_gemma3n.c: which places a row sees, the last `reach`, and where it stands among as many. */
typedef struct ears_places {
    int32_t *begin, *end, *axes;
} ears_places;
int  ears_places_take(ears_places *p, int n, int reach, err *e);
void ears_places_free(ears_places *p);

/* ears_rules.c */
const ears_family *ears_family_find(const model_file *model, const model_file *mmproj); /* NULL: no ears that we know */
int ears_rules_read(ears_rules *r, const ears_family *f, const model_file *model, const model_file *mmproj, err *e);
/* Of a key of an mmproj file, or a field; -1, or dflt, where it is no number. */
int64_t ears_meta(const model_file *f, const char *key);
int64_t ears_number(const json_value *v, const char *key, int64_t dflt);

extern const ears_family ears_whisper, ears_voxtral, ears_qwen2_audio, ears_flamingo, ears_music, ears_glmasr,
    ears_ultravox, ears_qwen_omni, ears_qwen3_omni, ears_qwen3_asr, ears_gemma3n, ears_gemma4, ears_gemma4_samples;

#endif
