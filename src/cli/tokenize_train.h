/* heed tokenize --train: a vocabulary from texts. */
#ifndef HEED_CLI_TOKENIZE_TRAIN_H
#define HEED_CLI_TOKENIZE_TRAIN_H

#include "cli/cli.h"

heed_status cli_tokenize_train(const cli_arguments *files, int32_t vocabulary, const char *folder, bool json);

#endif
