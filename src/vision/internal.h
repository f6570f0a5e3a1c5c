/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the vision room: families/ behind family.h (what differs from family to family, a file each), source.c and
 * rules.c (what the files say about preparing pictures), cut.c (sizes and pieces), area.c (sizes by area), text.c (words
 * in the prompt and its positions), open.c, order.c (which patch is where), places.c (learned positions), encode.c,
 * resample.c, windows.c and mix.c (the tower and the projector), keep.c (rows that are there already); of sounds mel.c
 * (what a tower gets) and the files behind ears_impl.h.
 */
#ifndef VISION_INTERNAL_H
#define VISION_INTERNAL_H

#include "base/json.h"
#include "nn/backend.h"
#include "vision/vision.h"

/* Part of the keys of rows that are kept on disk: a new one comes last. */
typedef enum vision_kind {
    VISION_GEMMA3,
    VISION_LLAVA,
    VISION_IDEFICS3,
    VISION_PIXTRAL,
    VISION_QWEN2,
    VISION_QWEN2_5,
    VISION_QWEN3,
    VISION_GEMMA4,
    VISION_GEMMA4_PATCHES,
    VISION_GLM,
    VISION_PADDLEOCR,
    VISION_VIDEO_LLAMA,
    VISION_EXAONE,
    VISION_ERNIE,
    VISION_INTERNVL,
    VISION_INTERNVL_CHAT,
    VISION_AYA,
    VISION_COHERE2,
    VISION_LLAVA_NEXT,
    VISION_LLAVA_ONEVISION,
    VISION_LIGHTON,
    VISION_VIPLLAVA,
    VISION_JANUS,
    VISION_DEEPSEEK_VL,
    VISION_LLAMA4,
    VISION_LFM2,
    VISION_KIMI_VL,
    VISION_KIMI_K25,
    VISION_MINICPMV,
    VISION_MINICPMV_2,
    VISION_HUNYUAN,
    VISION_QIANFAN,
    VISION_OVIS2,
    VISION_PALIGEMMA,
    VISION_GRANITE4,
    VISION_KINDS
} vision_kind;

typedef struct vision_family vision_family; /* family.h */

enum { VISION_MOST_GRIDS = 64, VISION_MOST_TILES = 64 };

/* How a picture is prepared; part of the key of its rows. */
typedef struct vision_rules {
    vision_kind   kind;
    pixels_filter filter;
    float         mean[3], std[3];
    int           patch;       /* pixels of a patch's side */
    int           merge;       /* patches on a side of the square that becomes a row */
    int           side;        /* GEMMA3: of the picture; LLAVA: the shorter one; IDEFICS3: of a tile */
    int           crop;        /* LLAVA */
    int           edge;        /* IDEFICS3: the longer side before it is cut; PIXTRAL: it is not longer; KIMI: patches;
                 * GRANITE4: patches on a side of a window */
    bool          split;       /* IDEFICS3: into tiles */
    int           least, most; /* by area: pixels; GEMMA4: rows at most; INTERNVL and its kin, LLAMA4: tiles; LFM2:
                                * rows; KIMI: patches */
    int           inner;       /* patches on a side of a square that becomes a row within the tower; 0: none does */
    int           window;      /* QWEN2_5: squares on the side of a window */
    bool          whole;       /* the rows of a picture see each other */
    int           most_kept;   /* LLAVA_ONEVISION: tiles whose rows a picture has at most; 0: any */
    int           n_grids;     /* LLAVA_NEXT and its kin: the canvases, in tiles */
    uint8_t       grid[VISION_MOST_GRIDS][2]; /* rows, columns */
    bool          grows;     /* LLAMA4: small pictures are scaled up to as many tiles as there may be */
    int           tiles[2];  /* LFM2: at least and at most */
    int           queries;   /* rows of every tile, whatever its size; 0: those of its squares */
    bool          marked;    /* MINICPMV: pictures have numbers */
    bool          thumbnail; /* LFM2: the whole stands behind its tiles */
    bool          squared;   /* LLAVA: the picture lies in a square of the mean colour first */
    bool          stretched; /* LLAVA: to side x side */
    uint8_t       canvas[3]; /* JANUS and its kin, LLAVA: the colour around the picture */
    float         tolerance; /* LFM2: larger than what one tile takes by this factor, and it is cut */
    int           marks;     /* OVIS2: rows of the table that are not scored */
    bool          covering;  /* OVIS2: tiles by how much they keep, not by their shape */
} vision_rules;

/* What becomes of a picture of some size. */
typedef struct vision_plan {
    int     width, height;             /* it is scaled to */
    int     first_width, first_height; /* IDEFICS3: and to this before; 0: it is not */
    int     tile_width, tile_height;
    int     canvas_width, canvas_height; /* it then lies in the middle of this; 0: it does not */
    bool    squared;                     /* LLAVA: before all, it lies in the middle of a square of its longer side */
    int     rows, cols;                  /* of tiles; 0: one tile is all of it */
    int     n_tiles;     /* the whole, squeezed into a tile, is the last one where there are more than rows * cols */
    bool    whole_first; /* no, the first one */
    bool    whole_anew;  /* it is squeezed from the picture itself, not from what is cut */
    int     tile_rows;   /* rows of a tile */
    int     across;      /* rows of a tile that stand beside each other */
    int     n_rows;      /* in the prompt */
    int     grid_left, grid_top;       /* of the tiles' rows as one grid: padding, left out at both ends */
    int     grid_width, grid_height;   /* what is left of it */
    int     kept_width, kept_height;   /* and what it is scaled to */
    uint8_t canvas[3];                 /* what is not the picture: black if the whole stands beside its tiles */
    bool    padded;                    /* what was scaled is in the upper left corner of its tiles, the rest is black */
    bool    marked;                    /* pictures have numbers in the prompt */
    int     number;                    /* of the picture among those of the prompt, from 0 */
    int     whole_width, whole_height; /* the whole comes from the picture itself and has this size; 0: see n_tiles */
    int     whole_rows;                /* its rows; of a picture of one tile: that one's */
} vision_plan;

/* A model of its own: the tower, what comes behind it, or the projector. */
typedef struct vision_stage {
    nn_model *model;
    nn_exec  *exec;
    int       max_rows, width_in, width_out;
} vision_stage;

typedef struct vision_kept {
    vision_rows rows;
    uint64_t    used;
} vision_kept;

typedef struct vision_keep {
    vision_kept *kept;
    size_t       n_kept, kept_bytes, limit_bytes;
    uint64_t     clock;
} vision_keep;

struct vision {
    vision_rules rules;
    vision_stage tower, middle, projector; /* middle: its model is NULL where no rows are merged within the tower */
    pool        *workers;                  /* for pixels */
    bool         other_word;               /* the family's row_else stands for a row */
    float       *fixed; /* rows that all pictures have. HUNYUAN: of a line's end; OVIS2: of words between tiles */
    int placed_across, placed_down; /* patches of the picture whose learned positions lie in the tower's own input */
    uint8_t     source[VISION_KEY_BYTES]; /* what the tower's file hashes to */
    vision_keep keep;
};

/* rules.c. *known is false where the file describes no tower that we know. */
bool rules_inside(const model_file *model, char prefix[64]); /* a GGUF file with the tower inside: its keys begin so */
int  rules_read(vision_rules *r, const model_file *model, const model_file *mmproj, bool *known, err *e);

/* source.c. config.json around a tower's part of it: that of the part that sees, listens and reads, in models that
 * speak, too. */
const json_value *source_outer(const model_file *model);

/* cut.c */
int     plan_make(vision_plan *p, const vision_rules *r, const pixels *picture, err *e); /* its size and detail */
void    plan_detail(vision_rules *r, bool low);   /* what changes where little detail is enough */
int64_t plan_most_patches(const vision_rules *r); /* of one tile */

/* order.c */
typedef struct vision_order {
    int      n;
    int32_t *patch;       /* [n]: which patch, counted row by row */
    int32_t *begin, *end; /* [n]: of the window that it lies in; NULL: there are none */
} vision_order;
int  order_make(vision_order *o, const vision_rules *r, int across, int down, err *e); /* across, down: in patches */
void order_free(vision_order *o);

/* places.c. Refuses a tile of more patches than the tower has positions for. */
int places_check(const nn_tower_top *top, size_t width, int across, int down, err *e);
/* The learned position of a patch of a picture of `down` rows and `across` columns. */
void place_put(float *to, const nn_tower_top *top, size_t width, int row, int col, int down, int across);

/* encode.c */
int  stage_open(vision_stage *s, const model_file *f, const nn_part *part, int max_rows, const vision_options *o,
                err *e);
void stage_close(vision_stage *s);
/* What it would take beside the mapped weights. */
int stage_measure(uint64_t *bytes, uint64_t *on_device, const model_file *f, const nn_part *part, int max_rows,
                  const vision_options *o, err *e);
/* A step of a stage. */
typedef struct stage_step {
    int                 n;
    const float        *in;       /* [n][width_in]; NULL: what the last step of `from` left */
    const vision_stage *from;     /* on the same device, which knows how (NN_BATCH_FROM) */
    const int32_t      *axes;     /* [2][n], or NULL */
    const vision_order *order;    /* where rows see windows, or NULL */
    const int32_t      *out_rows; /* [n_out]: which rows come out, in this order; NULL: all */
    int                 n_out;
    float              *out; /* [n_out][width_out]; NULL: they stay where they are */
} stage_step;
int stage_run(vision_stage *s, const stage_step *step, err *e);

/* resample.c. rows: of the tower, of a tile of so many patches. */
int resample(vision *v, int across, int down, const float *rows, float *out, err *e);

/* mix.c. in: n rows of what comes before the projector. */
int mix_rows(vision *v, int n, const float *in, float *out, err *e);

/* windows.c. rows: of the tower, of a tile of so many patches, those of a square side by side. */
int windows_run(vision *v, int across, int down, const float *rows, float *out, err *e);

/* open.c */
int tower_identify(uint8_t out[VISION_KEY_BYTES], const model_file *f, err *e); /* by the file */

/* keep.c */
void               keep_key(const vision *v, const pixels *picture, uint8_t key[VISION_KEY_BYTES]);
const vision_rows *keep_find(vision_keep *k, const uint8_t key[VISION_KEY_BYTES]);
/* Takes the rows' data over, also on failure. */
int  keep_add(vision_keep *k, const vision_rows *rows, const vision_rows **out, err *e);
void keep_free(vision_keep *k);

#endif
