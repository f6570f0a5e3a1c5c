/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a picture in the prompt, as each family's processor writes them. */
#include "vision/internal.h"

static const struct {
    const char *placeholder, *row;
} words[] = {
    [VISION_GEMMA3] = { "<start_of_image>", "<image_soft_token>" },
    [VISION_LLAVA] = { "<image>", "<image>" },
    [VISION_IDEFICS3] = { "<image>", "<image>" },
    [VISION_PIXTRAL] = { "[IMG]", "[IMG]" },
    [VISION_QWEN2] = { "<|image_pad|>", "<|image_pad|>" },
    [VISION_QWEN2_5] = { "<|image_pad|>", "<|image_pad|>" },
    [VISION_QWEN3] = { "<|image_pad|>", "<|image_pad|>" },
    [VISION_GEMMA4] = { "<|image|>", "<|image|>" },
};

const char *vision_placeholder(const vision *v) { return words[v->rules.kind].placeholder; }
const char *vision_row_word(const vision *v) { return words[v->rules.kind].row; }
bool        vision_whole(const vision *v) { return v->rules.whole; }

int vision_most_rows(const vision *v) { return plan_most_patches(&v->rules) / (v->rules.merge * v->rules.merge); }

static void put_rows(str *out, const char *word, int n) {
    for (int i = 0; i < n; i++) str_puts(out, word);
}

#define FAKE "<fake_token_around_image>"

static void write_tiles(const vision_plan *p, str *out, const char *word) {
    for (int y = 0; y < p->rows; y++) {
        for (int x = 0; x < p->cols; x++) {
            str_printf(out, FAKE "<row_%d_col_%d>", y + 1, x + 1);
            put_rows(out, word, p->tile_rows);
        }
        str_push(out, '\n');
    }
    str_puts(out, p->rows ? "\n" FAKE "<global-img>" : FAKE "<global-img>");
    put_rows(out, word, p->tile_rows);
    str_puts(out, FAKE);
}

int vision_grid(const vision *v, const pixels *picture, int *across, int *advance, err *e) {
    vision_plan p;
    int         rc = plan_make(&p, &v->rules, picture, e);
    *across = *advance = 0;
    if (rc < 0 || (v->rules.kind < VISION_QWEN2 || v->rules.kind > VISION_QWEN3)) return rc;
    int down = p.tile_rows / p.across;
    *across = p.across;
    *advance = p.across > down ? p.across : down;
    return 0;
}

int vision_write(const vision *v, const pixels *picture, str *out, err *e) {
    vision_plan p;
    const char *word = vision_row_word(v);
    int         rc = plan_make(&p, &v->rules, picture, e);
    if (rc < 0) return rc;
    switch (v->rules.kind) {
    case VISION_GEMMA3:
        str_puts(out, "\n\n<start_of_image>");
        put_rows(out, word, p.tile_rows);
        str_puts(out, "<end_of_image>\n\n");
        break;
    case VISION_QWEN2:
    case VISION_QWEN2_5:
    case VISION_QWEN3: /* the template prints what stands around them */
    case VISION_LLAVA: put_rows(out, word, p.tile_rows); break;
    case VISION_IDEFICS3: write_tiles(&p, out, word); break;
    case VISION_GEMMA4:
        str_puts(out, "<|image>");
        put_rows(out, word, p.tile_rows);
        str_puts(out, "<image|>");
        break;
    case VISION_PIXTRAL: {
        int across = p.across, down = p.tile_rows / across;
        for (int y = 0; y < down; y++) {
            put_rows(out, word, across);
            str_puts(out, y + 1 < down ? "[IMG_BREAK]" : "[IMG_END]");
        }
        break;
    }
    }
    return str_ok(out) ? 0 : err_set_nomem(e);
}
