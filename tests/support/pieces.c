#include "support/pieces.h"

#include <stdlib.h>
#include <string.h>

heed_status read_piece(gathered *g, const char *spec, int64_t first, int64_t count, int64_t room,
                       heed_memory *memory)
{
    const int64_t keys = first + count, kept = room;
    const heed_problem problem = {.batch = 1,
                                  .heads = g->heads,
                                  .kv_heads = g->kv_heads,
                                  .queries = count,
                                  .keys = kept,
                                  .dim = g->dim,
                                  .threads = 2,
                                  .with = HEED_WITH_MEMORY | HEED_WITH_SEQ};
    heed_plan *plan;
    heed_status status = heed_plan_create(&plan, spec, &problem);
    if (status)
        return status;
    int64_t numbers, reals;
    heed_plan_memory(plan, room, &numbers, &reals);
    if (!memory->real) {
        memory->real = calloc((size_t)reals + 1, sizeof *memory->real);
        memory->number = calloc((size_t)numbers + 1, sizeof *memory->number);
    }
    int32_t seq = (int32_t)keys, q_seq = (int32_t)count;
    const int64_t one = 1, size = sizeof(float), N = g->queries, D = g->dim;
    const int64_t shape[4] = {1, g->heads, count, D},
                  stride[4] = {g->heads * N * D * size, N * D * size, D * size, size};
    heed_tensor q = {.data = g->q + first * D, .type = HEED_F32, .rank = 4}, out = q;
    memcpy(q.shape, shape, sizeof shape);
    memcpy(q.stride, stride, sizeof stride);
    out = q;
    out.data = g->got_out + first * D;
    const int64_t k[] = {1, g->kv_heads, g->keys, D};
    const heed_tensor K = heed_tensor_dense(g->k, HEED_F32, 4, k),
                      V = heed_tensor_dense(g->v, HEED_F32, 4, k);
    heed_memory *list[] = {memory};
    const heed_extra extra = {.seq = heed_tensor_dense(&seq, HEED_I32, 1, &one),
                              .q_seq = heed_tensor_dense(&q_seq, HEED_I32, 1, &one),
                              .memory = list};
    status = heed_attend(plan, &q, &K, &V, &out, &extra);
    heed_plan_free(plan);
    return status;
}

void read_pieces(gathered *g, const char *spec, const int64_t *pieces, size_t count, int64_t room,
                 heed_memory *memory)
{
    int64_t first = 0;
    for (size_t n = 0; n < count; first += pieces[n++])
        if (read_piece(g, spec, first, pieces[n], room, memory))
            fail_msg("%s", heed_message());
}
