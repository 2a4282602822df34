/* Losses of the objectives, over what a model gives. */
#ifndef HEED_TRAIN_LOSSES_H
#define HEED_TRAIN_LOSSES_H

#include "train/pass.h"

/* How far relations of tokens are from a teacher's: the mean over heads, and over queries, keys and values,
 * of the mean over rows of KL(softmax(T T^T / sqrt(d)) || softmax(M M^T / sqrt(d))), each row over its own
 * token and those before it. mine, theirs: [3] of [batch, n, width]; targets as in heed_nn_divergence; heads
 * 0: the most up to 12 that divide all widths. */
heed_variable heed_relation_loss(heed_graph *graph, const heed_variable mine[3],
                                 const heed_variable theirs[3], heed_variable targets, int64_t heads);

/* Sets scores, judging and, where it trains, loss. */
void heed_losses_make(heed_pass *pass, bool train);

#endif
