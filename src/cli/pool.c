/* Memory that lives as long as one run of a command. */
#include "base/arena.h"
#include "cli/inputs.h"

#include <stdlib.h>

void *cli_take(cli_pool *pool, size_t bytes)
{
    void **grown = realloc(pool->item, ((size_t)pool->count + 1) * sizeof *grown);
    void *memory = grown ? heed_allocate(bytes, 1) : NULL;
    if (grown)
        pool->item = grown;
    if (memory)
        pool->item[pool->count++] = memory;
    else
        heed_fail(HEED_NO_MEMORY, "no memory for %zu bytes", bytes);
    return memory;
}

heed_status cli_new_tensor(cli_pool *pool, heed_type type, int rank, const int64_t *shape,
                           heed_tensor *tensor)
{
    size_t bytes;
    const heed_status status = heed_tensor_bytes(type, rank, shape, &bytes);
    if (status)
        return status;
    void *memory = cli_take(pool, bytes);
    if (!memory)
        return HEED_NO_MEMORY;
    *tensor = heed_tensor_dense(memory, type, rank, shape);
    return HEED_OK;
}

void cli_release(cli_pool *pool)
{
    for (int i = 0; i < pool->count; i++)
        free(pool->item[i]);
    free(pool->item);
    *pool = (cli_pool){0};
}
