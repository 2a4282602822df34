/* Models by the names that models/get gives them, or by any path. */
#ifndef HEED_CLI_MODEL_H
#define HEED_CLI_MODEL_H

#include <heed/base.h>

typedef struct cli_model_path {
    char text[4096];
} cli_model_path;

/* The path of a file or folder: `word` itself, or of that name in HEED_MODELS or ~/.cache/heed. HEED_IO, with
 * what is there, when there is neither. */
heed_status cli_find_model(const char *word, cli_model_path *path);

#endif
