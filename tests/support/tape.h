/* Reverse-mode differentiation in double precision, for the oracle: each operation leaves a node with its
 * value and its partial derivatives; walking back from the end gives the gradient of everything that went in.
 */
#ifndef HEED_TEST_TAPE_H
#define HEED_TEST_TAPE_H

#include <stdbool.h>
#include <stdint.h>

typedef int32_t var; /* a node's index */

/* A vector that products read: outside memory (x), or consecutive nodes of the same tape from `first` (x
 * NULL). */
typedef struct tape_vector {
    const double *x;
    double *gradient; /* to add to; NULL for constants */
    double
        *magnitude; /* the same with every term's absolute value: what bounds rounding errors; may be NULL */
    int64_t stride;
    var first;
} tape_vector;

typedef enum tape_product { TAPE_DOT, TAPE_SQUARED_DISTANCE, TAPE_ABSOLUTE_DISTANCE } tape_product;

typedef struct tape_link {
    tape_product kind;
    tape_vector a, b;
    const double *weight; /* [n]; NULL: all 1 */
    int n;
} tape_link;

typedef struct tape {
    double *value, *gradient, *magnitude;
    double *terms; /* [node] sum of the absolute values of the terms that were added up to the value */
    struct tape_node {
        var a, b; /* -1: none */
        int32_t link;
        double da, db;
        double wide; /* |da| for magnitudes, where rounding of the derivative itself counts */
    } * node;
    int count, capacity;
    tape_link *link;
    int links, link_capacity;
    double kink; /* least distance of an argument from a place where a derivative jumps, since the tape was
                    made */
} tape;

void tape_free(tape *t);
void tape_clear(tape *t); /* forgets the nodes, keeps the memory and `kink` */

/* Adds g to the gradient of x, and |g| times `size` to its magnitude. */
void tape_seed(tape *t, var x, double g, double size);
/* Walks back from the last node to the first. */
void tape_backward(tape *t);

tape_vector tape_outside(const double *x, double *gradient, double *magnitude, int64_t stride);
tape_vector tape_inside(var first);

var tape_constant(tape *t, double x);
var tape_leaf(tape *t, tape_vector v, int64_t i); /* entry i of an outside vector */
/* sum_i weight_i a_i b_i, or weight_i (a_i - b_i)^2, or weight_i |a_i - b_i| */
var tape_sum(tape *t, tape_product kind, tape_vector a, tape_vector b, const double *weight, int n);
/* ca a + cb b */
var tape_linear(tape *t, var a, double ca, var b, double cb);
var tape_shift(tape *t, var a, double by);
var tape_scale(tape *t, var a, double by);
var tape_multiply(tape *t, var a, var b);
var tape_divide(tape *t, var a, var b);
/* A function of one or two nodes whose value and partial derivatives are known. */
var tape_function(tape *t, double value, var a, double da, var b, double db);
var tape_exp(tape *t, var a);
var tape_log(tape *t, var a);
var tape_tanh(tape *t, var a);
var tape_sigmoid(tape *t, var a);
var tape_relu(tape *t, var a);
var tape_power(tape *t, var a, double exponent); /* of a >= 0; the derivative at 0 is taken as 0 */

static inline double tape_value(const tape *t, var x)
{
    return t->value[x];
}

#endif
