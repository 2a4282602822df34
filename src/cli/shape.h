/* Sizes of a problem as a person types them: --shape heads=8,queries=4096,dim=64. */
#ifndef HEED_CLI_SHAPE_H
#define HEED_CLI_SHAPE_H

#include <heed/attend.h>

/* Sets the sizes that `text` names (NULL: none) and, for the rest, batch=1, heads=8, kv_heads=heads, dim=64,
 * value_dim=dim, and queries=keys=1024 or equal to each other when one of them is named. */
heed_status cli_parse_shape(const char *text, heed_problem *problem);

/* For the help. */
#define CLI_SHAPE_DETAILS                                                                                    \
    "SIZES is a list such as heads=32,kv_heads=8,queries=1,keys=4096 of batch (1), heads (8), kv_heads "     \
    "(heads),\n"                                                                                             \
    "queries and keys (1024, or as the other of the two), dim (64) and value_dim (dim).\n"

#endif
