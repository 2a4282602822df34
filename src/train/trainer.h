/* A training run: model, data, optimiser and where it stands.
 *
 * Everything that happens at a step depends on the config and the step's number alone, so that a run that
 * goes on from a checkpoint has the bits of one that never stopped.
 */
#ifndef HEED_TRAIN_TRAINER_H
#define HEED_TRAIN_TRAINER_H

#include "nn/layers.h"
#include "train/base.h"
#include "train/config.h"
#include "train/data.h"
#include "train/pass.h"

typedef struct heed_trainer heed_trainer;

/* HEED_INVALID with the key that is wrong, HEED_IO for a text that cannot be read, HEED_NO_MEMORY. */
heed_status heed_trainer_create(heed_trainer **trainer, const heed_train_config *config, int threads);
void heed_trainer_free(heed_trainer *trainer);

typedef struct heed_trainer_info {
    int64_t parameters, tokens; /* numbers learnt; tokens a step */
    int64_t vocabulary, context;
    size_t bytes; /* of values, gradients, weights and the optimiser's state */
    double flops; /* multiplications and additions a step: three times those of a forward run */
} heed_trainer_info;
heed_trainer_info heed_trainer_get_info(const heed_trainer *trainer);
const heed_train_config *
heed_trainer_config(const heed_trainer *trainer); /* with what was left open filled in */
const heed_data *heed_trainer_data(const heed_trainer *trainer);
const heed_transformer *heed_trainer_model(const heed_trainer *trainer);
const heed_base *heed_trainer_base(const heed_trainer *trainer); /* NULL: a model from nothing */
heed_parameters *heed_trainer_parameters(const heed_trainer *trainer);

typedef struct heed_train_report {
    double loss, norm, rate; /* before the step; length of the gradient; the step's rate */
} heed_train_report;

int64_t heed_trainer_steps(const heed_trainer *trainer); /* done */
/* One step. When the loss or a gradient is no number, the weights stay as they are, and the sentence says at
 * which step and in which tensor it began. */
heed_status heed_trainer_step(heed_trainer *trainer, heed_train_report *report);

typedef struct heed_evaluated {
    double loss, accuracy; /* mean over targets in nats; share of targets that are the likeliest token */
    double ceiling;        /* of accuracy, NaN: not known */
    double bits;           /* a byte of text; NaN: not known */
    int64_t targets;
    struct {
        const char *name;
        double value;
    } measure[8]; /* what layers report of themselves */
    int measures;
} heed_evaluated;
/* On held-out data, with averaged weights where there are any. */
heed_status heed_trainer_evaluate(heed_trainer *trainer, heed_evaluated *evaluated);

/* An answer to one held-out sequence; -1 where nothing is asked for. */
typedef struct heed_answer {
    int64_t tokens, sources;
    const int32_t *given, *target, *said; /* [tokens] */
    const int32_t *source;                /* [sources] what an encoder read */
} heed_answer;
typedef struct heed_generated {
    int64_t sequences, exact; /* those of which every answer is right */
} heed_generated;
/* Answers held-out sequences freely: answers are made of the model's own, not of right ones. `show` may be
 * NULL. */
heed_status heed_trainer_generate(heed_trainer *trainer, int64_t sequences, heed_generated *out,
                                  void (*show)(void *context, const heed_answer *answer), void *context);
heed_pass *heed_trainer_judge(heed_trainer *trainer);

/* The whole state; the file appears whole or not at all. */
heed_status heed_trainer_save(const heed_trainer *trainer, const char *path);
/* HEED_FORMAT when it is the checkpoint of another config: which tensor, or which key. */
heed_status heed_trainer_load(heed_trainer *trainer, const char *path);
/* The config text in a checkpoint; to be freed. */
heed_status heed_checkpoint_config(const char *path, char **text);

/* model.safetensors, config.json and tokenizer.json in a folder, as other programs read them; *why becomes
 * NULL, or why the model is not one that config.json can describe (then only model.safetensors is written).
 */
heed_status heed_trainer_export(heed_trainer *trainer, const char *folder, const char **why);

/* The models that a config names: to go on from, and to learn from. */
heed_status heed_trainer_open_bases(heed_train_config *config, heed_base **base, heed_base **teacher);

/* The shape of a model from nothing; sizes of the config are filled in, texts stay those of the config. */
heed_status heed_train_shape(const heed_train_config *config, const heed_data *data, heed_transformer *model);

/* The data that it names; keys that were left open are filled in. */
heed_status heed_trainer_open_data(heed_train_config *config, heed_data *data);

/* For the files of the trainer: averages change places with weights. */
void heed_trainer_swap(const heed_trainer *trainer);
int heed_trainer_tensors(const heed_trainer *trainer);
/* Tensor i of the whole state. */
struct heed_optimiser;
typedef struct heed_trainer_tensor {
    char name[128];
    float *data;
    int rank;
    int64_t shape[HEED_MAX_RANK];
} heed_trainer_tensor;
heed_trainer_tensor heed_trainer_tensor_at(const heed_trainer *trainer, int i);
void heed_trainer_set_steps(heed_trainer *trainer, int64_t steps);

#endif
