/* Models that heed train wrote and that are asked one thing at a time: an answer to a text by an encoder and
 * a decoder, a class or a number of a text or a picture. */
#ifndef HEED_TRAIN_TRAINED_H
#define HEED_TRAIN_TRAINED_H

#include "train/trainer.h"

/* What predicting needs beside weights, as trained.json in the model's folder; nothing where a model is of
 * another kind. */
bool heed_trained_has(const heed_trainer *trainer);
heed_status heed_trained_write(const heed_trainer *trainer, const char *folder);

typedef struct heed_trained heed_trained;

/* `watch` may be NULL. HEED_IO, HEED_FORMAT with what is wrong. */
heed_status heed_trained_open(heed_trained **trained, const char *folder, const heed_watch *watch,
                              int threads);
void heed_trained_free(heed_trained *trained);

typedef struct heed_trained_info {
    heed_objective objective; /* class, regression or sequence */
    heed_image image;         /* patch 0: it reads text */
    int64_t context, source_context;
    int64_t classes, parameters;
    int64_t layers, heads;
} heed_trained_info;
heed_trained_info heed_trained_get_info(const heed_trained *trained);
/* A number where it has no name. */
const char *heed_trained_class_name(const heed_trained *trained, int64_t class, char room[24]);
const heed_tokenizer *heed_trained_tokenizer(const heed_trained *trained); /* NULL: bytes */

/* Tokens of a text, or grey or colour values 0 to 255 of a picture, row by row: probabilities of the classes,
 * or the number. */
heed_status heed_trained_judge(heed_trained *trained, const int32_t *token, int64_t count, float *result);

/* The answer to a text, the likeliest token each time, to its end or `context` tokens. */
heed_status heed_trained_answer(heed_trained *trained, const int32_t *token, int64_t count,
                                heed_tokens *said);

#endif
