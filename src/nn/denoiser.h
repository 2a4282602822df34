/* A denoiser: a stack of layers that sees a picture with noise, how much there is, and words that say what it
 * shows.
 *
 *     x = patches + places + level;  in each layer  x += p1 = attend(x),  x += p2 = cross(x, words),  x += p3
 * = feed(x)
 *
 * each behind a norm. What layers add can be given from outside instead of being computed, so that a sampler
 * may carry it from step to step. */
#ifndef HEED_NN_DENOISER_H
#define HEED_NN_DENOISER_H

#include "nn/layers.h"

enum { HEED_DENOISER_LAYERS = 16, HEED_DENOISER_WORDS = 2, HEED_DENOISER_FEATURES = 16 };

typedef enum heed_denoiser_part {
    HEED_DENOISE_ALL,     /* all is computed */
    HEED_DENOISE_NO_TEXT, /* `cross` are inputs; there are no words */
    HEED_DENOISE_HELD,    /* `attention` and `rest` are inputs: nothing of the layers is computed */
} heed_denoiser_part;

typedef struct heed_denoiser {
    heed_variable pixels;   /* [B, height, width, channels] with noise */
    heed_variable features; /* [B, HEED_DENOISER_FEATURES] of the level of noise */
    heed_variable label;    /* i32 [B]; the number of labels stands for none */
    heed_variable noise;    /* [B, N, patch^2 channels] what of the picture is noise, patch by patch */
    heed_variable attention[HEED_DENOISER_LAYERS], cross[HEED_DENOISER_LAYERS]; /* [B, N, width] */
    heed_variable
        rest[HEED_DENOISER_LAYERS]; /* what cross-attention and the feed-forward layer add together */
} heed_denoiser;

/* model: of pictures, with a vocabulary of as many labels; its cross_spec is that of the words. */
void heed_denoiser_make(heed_graph *graph, const heed_transformer *model, heed_denoiser_part part,
                        heed_denoiser *to);
/* Features of a level from 0 (a clean picture) to 1 (noise alone). */
void heed_denoiser_level(double level, float features[HEED_DENOISER_FEATURES]);
/* What of picture and noise there is at a level. */
double heed_denoiser_signal(double level);
double heed_denoiser_noise(double level);
/* Where entry i of the patches stands in the picture. */
int64_t heed_denoiser_place(const heed_image *image, int64_t i);

#endif
