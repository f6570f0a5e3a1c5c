/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs between the families of models that see: a file in families/ each, which says what a model's files mean, how a
 * picture is scaled and cut, and what stands for it in the prompt. To add one: a kind (internal.h), a file, a line in
 * families/list.c, and its tower and projector in src/models.
 */
#ifndef VISION_FAMILY_H
#define VISION_FAMILY_H

#include "base/arena.h"
#include "base/json.h"
#include "nn/config.h"
#include "nn/model.h"
#include "vision/internal.h"

/* More of a picture would take minutes to look at: pictures are made smaller. Files may allow four times as many. */
enum { VISION_MOST_ROWS = 4096 };
/* Nothing that is published comes near: squares of patches that become a row, patches of a tile (rows of the largest
 * pictures, each of sixteen of them), and its pixels; a tower looks at a tile in one step. */
enum { VISION_MOST_MERGE = 16, VISION_MOST_PATCHES = 16 * VISION_MOST_ROWS, VISION_LIMIT_TILES = 257 };
enum { VISION_MOST_PIXELS = 1 << 25 };
enum { VISION_LOW_SIDE = 512 }; /* OpenAI's size of a picture with little detail */

/* How colours are scaled where the files do not say it. */
typedef struct vision_colours {
    float mean[3], std[3];
} vision_colours;
extern const vision_colours vision_colours_none, vision_colours_half, vision_colours_clip, vision_colours_imagenet;

/* Files that have such a tower. */
typedef struct vision_kin {
    const char           *type;      /* model_type of config.json */
    const char           *projector; /* the mmproj's projector type; NULL: there is none */
    const char           *inside;    /* architecture of GGUF files that have such a tower inside; NULL: none */
    const char           *tower;     /* model_type of its vision_config; NULL: any */
    pixels_filter         filter;
    const vision_colours *colours; /* of the published models */
} vision_kin;

/* What the files say. */
typedef struct vision_source {
    const model_file *model, *mmproj;        /* mmproj: the GGUF file with the tower, the model's own too */
    char              prefix[64];            /* of the tower's keys there, with a point behind it */
    const json_value *config, *vision, *pre; /* of a directory */
    arena             mem;
} vision_source;

enum { VISION_SETS = 16 };

/* What the tower and the projector are built from, and how many rows they take. */
typedef struct vision_parts {
    nn_part           tower, middle, projector;
    nn_config_set     set[VISION_SETS]; /* what the files do not say, or say elsewhere; for both */
    char              keys[64];
    const model_file *from;                     /* the file with the tower */
    bool              inside;                   /* the tower lies in the model's own GGUF file */
    int               patches, merged, squares; /* merged: rows of the middle; squares: of a tile */
    int               asked;                    /* rows of the projector */
} vision_parts;

struct vision_family {
    const vision_kin *kin; /* ends with one without a type */
    const nn_arch    *tower, *projector;
    const nn_arch    *middle; /* where rules.inner is not 0: what the merged rows go through before the projector */
    const char       *placeholder; /* what a template prints for a picture */
    const char       *row;         /* what stands for one row */
    const char       *row_else;    /* where the vocabulary has no such word; NULL: nothing does */
    const char       *shows;       /* with an mmproj, the model's chat template has this; NULL: anything */
    bool              grid;        /* positions have several axes, and the rows of a picture stand in a grid of them */
    bool              mixes;       /* the projector's rows are mixed by what the middle says of them (mix.c) */
    bool              counted;     /* that grid has a row more at the end of each line (vision_place) */
    bool              own_colours; /* the files' are for others */
    bool              no_switches; /* the reference is the authors', and its files have no do_rescale and the like */
    bool              resizes;     /* the reference does, whatever do_resize says */
    bool              fixed_tiles; /* do_resize changes nothing where pictures are cut: tiles have their size anyway */
    bool              short_colours; /* they are scaled in 16 bits (bfloat16) */
    bool              windows;       /* queries in windows: middle and projector are both needed (windows.c) */
    bool              prompt_whole;  /* a prompt with pictures sees itself as a whole, its text too */
    bool              by_channel; /* the patches of a square: all of the first element, then all of the second, ... */
    /* What the reference takes where preprocessor_config.json names no colours; NULL: the kin's. */
    const vision_colours *silent;

    /* Sizes, from the files. patch and side are there (-1: the files do not say it). */
    int (*read)(vision_rules *r, const vision_source *s, err *e);
    /* What changes where little detail is enough; NULL: nothing. */
    void (*low)(vision_rules *r);
    int (*plan)(vision_plan *p, const vision_rules *r, int width, int height, err *e);
    /* Patches of one tile, at most; NULL: those of a square picture of r->side. */
    int64_t (*most_patches)(const vision_rules *r);
    /* Tiles of a picture, at most; NULL: one. */
    int (*most_tiles)(const vision_rules *r);
    /* Where the rows in the prompt are not those of its tiles, one after the other (NULL), but p->n_rows others: makes them. */
    void (*arrange)(float *out, const vision *v, const vision_plan *p, const float *rows);
    /* What is computed once, when the eyes are open; NULL: nothing. */
    int (*opened)(vision *v, err *e);
    /* What stands in the prompt; NULL: the words of its rows and nothing else. */
    void (*write)(str *out, const vision_plan *p, const char *row);
    /* What the tower and the projector need beside the files; NULL: nothing. */
    void (*parts)(vision_parts *p, const vision_rules *r, const model_file *model);
};

/* By kind. */
extern const vision_family *const vision_families[VISION_KINDS];

/* --- for families --- */

/* source.c. A number of the mmproj (NULL: it has none), or of a directory; dflt where neither says it, -1 where it makes no
 * sense. */
int               source_number(const vision_source *s, const char *meta, const json_value *v, int dflt);
bool              source_outer_number(const vision_source *s, const char *key, int *out); /* beside a tower inside */
bool              source_switch(const vision_source *s, const char *field, bool dflt);    /* of the preprocessor */
const meta_value *source_meta(const vision_source *s, const char *name); /* of the tower in a GGUF file */
/* A side of a size of the preprocessor, which is a number or an object. */
const json_value *source_size(const vision_source *s, const char *field, const char *side);
bool              source_inside(const vision_source *s);

int  vision_up_to(int x, int step); /* the next multiple */
void vision_one_tile(vision_plan *p, int width, int height);
void vision_put_rows(str *out, const char *word, int n);
/* Refuses sizes that do not go into each other. */
int vision_check_squares(const vision_rules *r, err *e);
/* The mean colour, as a pixel: int() of it, as the reference has it. */
void vision_mean_colour(uint8_t out[3], const vision_rules *r);

/* area.c. Pictures of any size between r->least and r->most pixels. The number of pixels that an mmproj file (key; Ollama: edge)
 * or a preprocessor (field, or edge in its size) says; -1 where it makes no sense. */
int     vision_area(const vision_source *s, const char *key, const char *field, const char *edge, int dflt);
int     vision_area_check(vision_rules *r, err *e); /* patch, merge, least, most; sets side */
void    vision_area_low(vision_rules *r);
int     vision_area_plan(vision_plan *p, const vision_rules *r, int width, int height, err *e);
int64_t vision_area_patches(const vision_rules *r);

/* tiles.c. A grid of tiles of r->side, between r->least and r->most of them, and the whole behind it where it has more than one:
 * the one whose sides are most like the picture's, or the one that needs the least enlargement. */
void vision_put_grid(vision_plan *p, const vision_rules *r, int cols, int rows);
void vision_grid_alike(vision_plan *p, const vision_rules *r, int width, int height);
void vision_grid_near(vision_plan *p, const vision_rules *r, int width, int height);
int  vision_grid_most(const vision_rules *r); /* tiles, the whole too */

/* Rows of the first of two matrices that is there; 0: neither is. */
double vision_matrix_rows(const model_file *model, const char *name, const char *other);
void   vision_set(vision_parts *p, const char *key, double value, bool fallback);

#endif
