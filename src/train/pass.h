/* A graph over a model for one kind of run: its inputs, what it computes from a batch, and the loss. */
#ifndef HEED_TRAIN_PASS_H
#define HEED_TRAIN_PASS_H

#include "nn/denoiser.h"
#include "nn/graph.h"
#include "train/base.h"
#include "train/config.h"
#include "train/examples.h"

/* What models are made of, for all passes of a run. */
typedef struct heed_pass_of {
    const heed_train_config *config;
    const heed_data *data;
    const heed_transformer *model; /* sizes; of a base too */
    const heed_base *base;         /* NULL: a model from nothing */
    const heed_base *teacher;      /* of distillation and preference; may be `base` */
    bool teacher_apart;            /* its parameters are called teacher.NAME */
    heed_base_learn learn;
    heed_parameters *parameters;
    heed_watch watch; /* of passes that judge */
    int threads;
} heed_pass_of;

/* What `scores` are. */
typedef enum heed_judging {
    HEED_JUDGE_CLASSES, /* [..., classes]: targets are one of them each */
    HEED_JUDGE_NUMBERS, /* [batch] what `numbers` should be */
    HEED_JUDGE_NOISE,   /* [batch, patches, numbers] what `noise` should be */
    HEED_JUDGE_MARGINS, /* [batch] above 0 where the right answer is preferred */
} heed_judging;

typedef struct heed_pass {
    const heed_pass_of *of;
    heed_graph *graph;
    heed_transformer_nodes nodes;
    heed_variable last[3];  /* queries, keys and values of the model's last layer */
    heed_beside beside;     /* what layers give beside their results */
    heed_variable targets;  /* i32; one a token, or one an example */
    heed_variable weights;  /* [rows, context] of tokens in what is made of a whole text; or HEED_NO_INPUT */
    heed_variable numbers;  /* [batch]; or HEED_NO_INPUT */
    heed_denoiser denoiser; /* of HEED_OBJECTIVE_DENOISE, */
    heed_variable noise;    /* and what it should find, patch by patch */
    heed_variable scores, loss;
    heed_judging judging;
    int32_t *room; /* for examples */
    heed_example example;
} heed_pass;

/* A graph for gradients, or one that only judges. */
heed_status heed_pass_make(heed_pass *pass, const heed_pass_of *of, bool train);
void heed_pass_free(heed_pass *pass);

/* Examples first... into the inputs; from `last` on nothing is asked for. */
void heed_pass_fill(heed_pass *pass, bool held_out, int64_t first, int64_t last);

enum { HEED_CHANCES = 1024 };
typedef struct heed_pass_counts {
    double loss;
    int64_t right, targets;
    double sum, squares;         /* of numbers */
    double measure[HEED_BESIDE]; /* sums over batches */
    int64_t batches;
    int64_t seen[2][HEED_CHANCES]; /* answers of no and yes by how likely yes was thought */
    int64_t both, either;          /* where yes is right and said, or one of them */
} heed_pass_counts;
/* Adds up what the last forward run of a judging pass says. */
void heed_pass_count(const heed_pass *pass, const heed_nn_kernels *kernels, heed_pass_counts *counts);
/* Share of right ones; of numbers, the share of their variance that is known. */
double heed_pass_accuracy(const heed_pass *pass, const heed_pass_counts *counts);
/* Of answers that are no or yes: how often a yes is thought likelier to be one than a no is (the area under
 * the curve of hits over false alarms); NaN where there are no such answers. */
double heed_pass_area(const heed_pass_counts *counts);

#endif
