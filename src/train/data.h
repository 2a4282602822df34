/* Where batches come from: a task, or tokens of a text. Batch after batch is a function of the seed and the
 * number of the step alone, so that a run can go on from any step.
 */
#ifndef HEED_TRAIN_DATA_H
#define HEED_TRAIN_DATA_H

#include "train/records.h"
#include "train/synthetic.h"

#include <heed/tokenizer.h>

typedef enum heed_objective {
    HEED_OBJECTIVE_NEXT,     /* the next token of a text; what a task asks for */
    HEED_OBJECTIVE_MASKED,   /* 15 % of the tokens: 8 of 10 hidden behind a mask, 1 replaced, 1 as it was
                                (Devlin et al.) */
    HEED_OBJECTIVE_CLASS,    /* the last target of a task as a class of the whole sequence */
    HEED_OBJECTIVE_DISTIL,   /* what a teacher expects at each place (Hinton et al.) */
    HEED_OBJECTIVE_SPAN,     /* spans that marks stand for, behind the text (Raffel et al.: T5) */
    HEED_OBJECTIVE_SEQUENCE, /* an answer to a prompt; by an encoder and a decoder, or one after the other */
    HEED_OBJECTIVE_CONTRASTIVE, /* which text of a batch belongs to which (van den Oord et al.: InfoNCE) */
    HEED_OBJECTIVE_REGRESSION,  /* a number of the whole text */
    HEED_OBJECTIVE_PREFERENCE,  /* one answer rather than another (Rafailov et al.: DPO) */
    HEED_OBJECTIVE_DENOISE,     /* what of a picture is noise, told what it shows (Ho et al. 2020) */
} heed_objective;

enum { HEED_SENTINELS = 32 }; /* marks for hidden spans, behind the vocabulary; the last is an end */

const char *heed_objective_name(int i); /* NULL beyond the last */
/* Whether an example has a class: a task's last answer. */
bool heed_objective_has_class(heed_objective objective);
/* Whether a model that learned so expects next tokens. */
bool heed_objective_says_next(heed_objective objective);

typedef struct heed_data {
    const heed_synthetic *task; /* NULL: text */
    int64_t arg[HEED_SYNTHETIC_ARGS];
    int32_t *text;            /* [tokens] */
    int64_t tokens, held_out; /* the last `held_out` are for evaluation */
    int64_t bytes_held_out;   /* bytes of text they stand for; 0: not known */
    int64_t vocabulary;       /* with the mask, where there is one */
    int64_t context;          /* of a task: what it needs */
    heed_records records;     /* instead of a text; `held_out` counts records then */
    int64_t source_context;   /* with an encoder: what it reads; else 0 */
    int32_t end;              /* the token that ends a record's text; -1: none */
    int64_t sentinel;         /* of HEED_OBJECTIVE_SPAN: the first mark */
    int64_t marks, between;   /* kinds of marks, the last tokens: 0, 1 or 2, and tokens between them */
    heed_objective objective;
    uint64_t seed;
} heed_data;

/* data = "copy(length=8)": a task with its arguments, by name or in order; "NAME" alone takes its usual ones.
 * What is wrong is said in one sentence with the nearest known name. */
heed_status heed_data_task(heed_data *data, const char *text);

/* All of a file, ended by 0. */
heed_status heed_read_file(const char *path, char **text, size_t *size);

/* Records of a JSONL or CSV file, of which the last share is for evaluation. HEED_FORMAT with the line that
 * is wrong, HEED_INVALID where the objective cannot be learnt from such data. */
heed_status heed_data_records(heed_data *data, const char *path, const heed_tokenizer *tokenizer,
                              double held_out);

/* Pictures [n, height, width] or [n, height, width, channels] of .npy files: bytes, or floats from 0 to 1,
 * which become one of 256 each; with a class each, of another. */
heed_status heed_data_pictures(heed_data *data, const char *path, const char *labels, double held_out);

/* A text file by bytes (tokenizer NULL), or by a tokeniser; or a safetensors file with a tensor `tokens` of
 * I32, or a .npy file of whole numbers. The last `held_out` of it (a share) is for evaluation. */
heed_status heed_data_text(heed_data *data, const char *path, const heed_tokenizer *tokenizer,
                           double held_out);
/* Whether a file holds tokens already. */
bool heed_data_is_packed(const char *path);
void heed_data_free(heed_data *data);

/* Sequence `which` for training or evaluation: context tokens and targets (one with HEED_OBJECTIVE_CLASS). */
void heed_data_make(const heed_data *data, bool held_out, uint64_t which, int64_t context, int32_t *token,
                    int32_t *target);

/* Of the first `count` tokens. */
void heed_data_mask(const heed_data *data, heed_draw *draw, int64_t count, int32_t *token, int32_t *target);

/* Sequences of `context` tokens that evaluation has: for texts all of the held-out part once; tasks have no
 * end. */
int64_t heed_data_evaluations(const heed_data *data, int64_t context);

#endif
