/* Checking operations of graphs: their values against plain definitions in double precision, their gradients
 * against central differences of those definitions. */
#ifndef HEED_TEST_NN_H
#define HEED_TEST_NN_H

#include <heed/nn.h>

enum { NN_INPUTS = 5, NN_MOST = 4096 };

typedef struct nn_shape {
    int rank;
    int64_t size[4];
} nn_shape;

static inline int64_t nn_count(const nn_shape *shape)
{
    int64_t count = 1;
    for (int d = 0; d < shape->rank; d++)
        count *= shape->size[d];
    return count;
}

typedef struct nn_case nn_case;
struct nn_case {
    const char *name;
    nn_shape in[NN_INPUTS];
    int ins;
    nn_shape index; /* i32 input behind the others; rank 0: none */
    const int32_t *indices;
    double least; /* of the inputs; else they are normal */
    bool positive;
    double tolerance; /* 0: 1e-5 */
    int whole[4];
    heed_variable (*make)(heed_graph *graph, const nn_case *c, const heed_variable *in);
    /* out [as many as the node has entries] */
    void (*define)(const nn_case *c, const double *const *in, double *out);
};

/* With threads 1 and 3, on every instruction set; also that both give the same bits, that gradients add up,
 * and that recomputing changes nothing. */
void nn_check(const nn_case *c);

#endif
