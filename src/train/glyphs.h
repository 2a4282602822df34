/* The shapes of the task `glyphs`, by which pictures that were made are judged. */
#ifndef HEED_TRAIN_GLYPHS_H
#define HEED_TRAIN_GLYPHS_H

#include "train/synthetic.h"

enum { HEED_GLYPHS = 4, HEED_GLYPH_SIDE = 3 };

bool heed_glyph_has(int64_t kind, int64_t row, int64_t col);
/* The kind that a frame [side, side] of numbers from -1 to 1 is nearest to, wherever it stands. */
int64_t heed_glyph_nearest(const float *frame, int64_t side);

#endif
