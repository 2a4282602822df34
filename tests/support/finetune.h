/* Pretrained models in a graph, against a session on the same tokens. */
#ifndef HEED_TEST_FINETUNE_H
#define HEED_TEST_FINETUNE_H

#include "train/base.h"

enum { TOKENS = 12 };

/* Logits, or hidden states, of TOKENS tokens by a graph; freed by the caller. */
float *by_graph(const char *path, const int32_t *token, const char *attention, const heed_base_learn *learn,
                bool recompute);

/* Session and graph must agree; `attention` NULL: the model's own. */
void agree(const char *path, const char *attention);

#endif
