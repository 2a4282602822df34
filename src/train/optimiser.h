/* Optimisers: from gradients to changed weights. A file each in optimisers/, a line each in the table.
 *
 * Whatever the number of threads, the bits are the same. The state is tensors by name, so that it can be
 * saved.
 */
#ifndef HEED_TRAIN_OPTIMISER_H
#define HEED_TRAIN_OPTIMISER_H

#include "nn/kernels.h"

enum { HEED_OPTIMISER_SLOTS = 2 };

/* Numbers of all kinds; which count says each kind's file. */
typedef struct heed_optimiser_how {
    float rate;  /* the schedule's factor is multiplied in for each step */
    float beta1; /* of running means of gradients; momentum */
    float beta2; /* of running means of their squares */
    float eps;
    float decay; /* decoupled: weights shrink by rate decay a step; not those of plain parameters */
    bool nesterov;
    float other_rate; /* muon: for what is no matrix of the middle */
} heed_optimiser_how;

/* One parameter's step. */
typedef struct heed_update {
    const heed_optimiser_how *how;
    const heed_nn_kernels *kernels;
    int threads;
    heed_parameter *parameter;
    float *state[HEED_OPTIMISER_SLOTS];
    float rate, other_rate; /* with the schedule */
    float decay;            /* how->decay or 0 */
    float scale;            /* of the gradient */
    uint64_t step;          /* from 1 on */
    float *scratch;
} heed_update;

typedef struct heed_optimiser_kind {
    const char *name, *source;
    const char *slot[HEED_OPTIMISER_SLOTS];
    /* numbers of a slot for a parameter */
    int64_t (*size)(const heed_parameter *parameter, int slot);
    int64_t (*scratch)(const heed_parameter *parameter); /* NULL: none */
    void (*update)(const heed_update *update);
    heed_optimiser_how usual;
} heed_optimiser_kind;

/* NULL beyond the last. */
const heed_optimiser_kind *heed_optimiser_kind_at(int i);

typedef struct heed_optimiser heed_optimiser;

/* For all parameters that are not frozen. */
heed_status heed_optimiser_create(heed_optimiser **optimiser, const heed_optimiser_kind *kind,
                                  const heed_optimiser_how *how, heed_parameters *parameters, int threads,
                                  heed_isa isa);
void heed_optimiser_free(heed_optimiser *optimiser);

/* The length of all gradients together, in double; NaN or infinite when one of them is. */
double heed_optimiser_norm(const heed_optimiser *optimiser);
/* Changes the weights. `factor` is the schedule's, `scale` is multiplied into gradients. */
void heed_optimiser_step(heed_optimiser *optimiser, float factor, float scale);

uint64_t heed_optimiser_steps(const heed_optimiser *optimiser);
void heed_optimiser_set_steps(heed_optimiser *optimiser, uint64_t steps);

/* Tensors of its state: "optimiser.SLOT.PARAMETER". */
typedef struct heed_state_tensor {
    char name[128];
    float *data;
    int64_t count;
} heed_state_tensor;
int heed_optimiser_tensors(const heed_optimiser *optimiser);
heed_state_tensor heed_optimiser_tensor(const heed_optimiser *optimiser, int i);

/* A piece of work on consecutive entries, whatever the threads. */
enum { HEED_UPDATE_PIECE = 16384 };
int64_t heed_update_same(const heed_parameter *parameter, int slot);
void heed_update_adamw(const heed_update *update, float rate);

#endif
