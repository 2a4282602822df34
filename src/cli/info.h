/* What the two ways to print a model share. */
#ifndef HEED_CLI_INFO_H
#define HEED_CLI_INFO_H

#include "model/summary.h"

/* All tensors of one type. */
typedef struct cli_type_sum {
    const char *dtype;
    int tensors;
    double values;
    size_t bytes;
} cli_type_sum;

typedef struct cli_info {
    const heed_model_file *file;
    heed_model_summary summary;
    cli_type_sum *types; /* largest first */
    int type_count;
    char refusal[400]; /* why heed does not run this architecture; "" when it does, or when none is named */
    bool tensors, metadata;
} cli_info;

enum { CLI_MOST_ENTRIES = 6 }; /* of an array of the metadata that are shown */

/* Bytes of cache a token takes with keys and values of this type. */
double cli_info_cache(const cli_info *info, heed_type type);

void cli_info_json(const cli_info *info);

#endif
