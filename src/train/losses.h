/* Losses of the objectives, over what a model gives. */
#ifndef HEED_TRAIN_LOSSES_H
#define HEED_TRAIN_LOSSES_H

#include "train/pass.h"

/* Sets scores, judging and, where it trains, loss. */
void heed_losses_make(heed_pass *pass, bool train);

#endif
