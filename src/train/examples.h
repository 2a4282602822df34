/* What objectives make of data: examples of one or several sequences. */
#ifndef HEED_TRAIN_EXAMPLES_H
#define HEED_TRAIN_EXAMPLES_H

#include "train/data.h"

/* Room for one example; all of it is written. */
typedef struct heed_example {
    int32_t *token;  /* [rows, context] */
    int32_t *target; /* [rows, context], or one: a class; -1 where nothing is asked for */
    int32_t *length; /* [rows] tokens that are text; the rest is padding */
    int32_t *source; /* [source_context] what an encoder reads; NULL without */
    int32_t source_length;
    float number; /* of HEED_OBJECTIVE_REGRESSION */
} heed_example;

/* Sequences of an example: 2 of a pair, 3 with a negative. */
int64_t heed_data_rows(const heed_data *data);
/* Whether an objective asks for one thing of a whole sequence. */
bool heed_objective_pools(heed_objective objective);

/* Example `which`. `room` has 2 (context + source context) numbers. */
void heed_data_example(const heed_data *data, bool held_out, uint64_t which, int64_t context,
                       heed_example *to, int32_t *room);

/* With an encoder: what stands before a task's first answer is read, the rest written. */
heed_status heed_data_split_task(heed_data *data);

#endif
