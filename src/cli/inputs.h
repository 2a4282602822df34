/* The tensors of `heed attend`: what it finds in its input file, and memory for what it puts out. */
#ifndef HEED_CLI_INPUTS_H
#define HEED_CLI_INPUTS_H

#include "cli/spec_use.h"
#include "model/safetensors.h"

/* Memory that lives as long as one run of a command. */
typedef struct cli_pool {
    void **item;
    int count;
} cli_pool;

/* Zeroed bytes at a multiple of 64; NULL with a message when there are none. */
void *cli_take(cli_pool *pool, size_t bytes);
/* A dense tensor of zeros. */
heed_status cli_new_tensor(cli_pool *pool, heed_type type, int rank, const int64_t *shape,
                           heed_tensor *tensor);
void cli_release(cli_pool *pool);

/* What is read from a file, and which of its tensors were. */
typedef struct cli_inputs {
    const char *path;
    heed_safetensors *file;
    bool *used; /* [tensors of the file] */
    cli_pool *pool;
    heed_tensor q, k, v, dout;
    heed_extra extra;
    heed_tensor *params; /* in the order of heed_plan_param; data NULL where the file has none */
} cli_inputs;

heed_status cli_open_inputs(cli_inputs *inputs, const char *path, cli_pool *pool);
void cli_close_inputs(cli_inputs *inputs);

/* Reads q, k, v (k and v stored as kv[0] and kv[1] unless those are HEED_TYPES), positions, lengths, segments
 * and mask, and fills in sizes, types and `with` of the problem. */
heed_status cli_read_inputs(cli_inputs *inputs, const cli_spec_use *use, const heed_type kv[2],
                            heed_problem *problem);

/* Reads the plan's parameters as far as the file has them. */
heed_status cli_read_params(cli_inputs *inputs, const heed_plan *plan);

/* Reads a tensor of floats of some kind as f32; data stays NULL where the file has none of that name. */
heed_status cli_read_floats(cli_inputs *inputs, const char *name, heed_tensor *tensor);

/* Reads the gradient of the output. */
heed_status cli_read_dout(cli_inputs *inputs, const heed_problem *problem);

/* Says on stderr which tensors of the file were not used, and why. */
void cli_note_unused(const cli_inputs *inputs);

#endif
