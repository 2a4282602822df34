/* States of the recurrences in a layer's graph. */
#include "model/carried.h"
#include "nn/graph.h"

int64_t heed_carried_floats(const heed_carried *made)
{
    return heed_graph_state_floats(made->graph);
}

void heed_carried_along(const heed_carried *made, float *states)
{
    heed_graph_carry(made->graph, states);
}
