/* Checking layers by a form: their output against definitions in double precision, the gradients of the input
 * and of every parameter against differences of those definitions, causality by changing a later token. */
#ifndef HEED_TEST_LAYER_CHECK_H
#define HEED_TEST_LAYER_CHECK_H

#include "nn/layers.h"

enum { LAYER_B = 2, LAYER_MOST = 8192 };

typedef struct layer_text {
    int n, width, heads, kv_heads, d; /* tokens; numbers of a token; of a head */
    const double *x;                  /* [B][n][width] */
    struct layer_values *values;
} layer_text;

/* A parameter by its name below the layer's. */
const double *layer_value(const layer_text *t, const char *name);

typedef struct layer_case {
    const char *spec;
    void (*define)(const layer_text *t, double *out); /* out [B][n][width] */
    /* instead of a spec, whose text is then a name for messages: any shape of x, parameters below "layer" */
    heed_variable (*build)(heed_graph *graph, heed_variable x);
    bool causal;                          /* later tokens must not change earlier outputs */
    bool start;                           /* parameters as they begin, and no gradients */
    int n, width, heads, kv_heads, layer; /* 0: 6, 8, 2, heads, 0 */
    double tolerance;                     /* 0: 2e-5 */
} layer_case;

void layer_check(const layer_case *c);
/* Entries of all parameters together. */
int64_t layer_parameters(const layer_case *c);
/* The output of a spec, with the parameters of the names that another has, where it has them: x, then
 * parameters drawn by name. */
void layer_output(const layer_case *c, float *out);

/* y [rows][out] = x [rows][in] W^T, W [out][in] */
void layer_map(const double *W, const double *x, int rows, int in, int out, double *y);
/* The map called NAME.weight of all tokens: [B][n][out] */
double *layer_mapped(const layer_text *t, const char *name, int out, double *y);
/* Softmax attention of rows [B][n][heads d] by scores times scale, a mask beside; y alike. */
void layer_attend(const layer_text *t, const double *q, const double *k, const double *v, bool causal,
                  double *y);
void layer_softmax(double *x, int n);
static inline double layer_sigmoid(double x)
{
    return 1 / (1 + __builtin_exp(-x));
}
/* o_proj */
void layer_out(const layer_text *t, const double *y, double *out);

#endif
