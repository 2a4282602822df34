/* A graph from the inside: its nodes, and what an operation has to say of itself.
 *
 * Making an operation checks shapes and writes down the sizes of what is kept between the forward and the
 * backward run
 * (`saved`) and of what it needs only while it works (`scratch`). The plan gives every value, gradient and
 * saved piece a place in one block of memory, so that those which live at the same time do not overlap.
 */
#ifndef HEED_NN_GRAPH_H
#define HEED_NN_GRAPH_H

#include "base/try.h"
#include "nn/kernels.h"

#include <heed/nn.h>

enum { HEED_NN_INPUTS = 26 };

typedef struct heed_work heed_work;
typedef struct heed_nn_node heed_nn_node;

enum heed_op_flags {
    HEED_OP_READS_OUTPUT = 1, /* the backward run reads the output */
    HEED_OP_IN_PLACE = 2,     /* it may write the gradient of input 0 over the value of input 0 */
    HEED_OP_OVERWRITES = 4,   /* the backward run cannot add: it is given room of its own where it should */
};

typedef struct heed_op {
    const char *name;
    heed_status (*forward)(const heed_work *work);
    heed_status (*backward)(const heed_work *work);
    void (*free)(heed_nn_node *node);
    unsigned reads; /* bit i: the backward run reads input i */
    unsigned flags;
} heed_op;

/* When a buffer is in use, in steps of the plan, and where it lies. */
typedef struct heed_life {
    size_t bytes, offset;
    int first, last; /* first < 0: not used */
    int merged;      /* the buffer that this one lies in, -1: its own */
} heed_life;

struct heed_nn_node {
    const heed_op *op; /* NULL: an input, a parameter or a view */
    heed_type type;
    int rank;
    int64_t shape[HEED_MAX_RANK], count;
    heed_variable in[HEED_NN_INPUTS];
    int ins;
    heed_variable view; /* whose numbers these are; HEED_NO_VARIABLE: its own */
    heed_parameter *parameter;
    float number[2];
    int64_t whole[6];
    void *own;
    size_t saved_bytes, forward_scratch, backward_scratch;
    double flops;
    int segment; /* 0: none */
    bool wants;  /* a gradient */
    bool kept, used, again;
    bool reached;                                    /* of a parameter: some step computes its gradient */
    int value_life[2], gradient_life, saved_life[2]; /* indices of lives, -1: none; [1]: computed again */
    void *value;
    float *gradient;
    void *saved;
};

typedef enum heed_step_kind { HEED_STEP_FORWARD, HEED_STEP_AGAIN, HEED_STEP_BACKWARD } heed_step_kind;

typedef struct heed_step {
    heed_step_kind kind;
    heed_variable node;
    uint32_t add;   /* bit i: the gradient of input i was begun by a step before */
    uint32_t owner; /* bit i: it is a parameter's, begun here */
} heed_step;

/* Who is shown the weights of each attention, under its name: threads call it. */
typedef struct heed_watch {
    void (*weights)(void *context, const char *name, const heed_weights_tile *tile); /* NULL: nobody */
    void *context;
} heed_watch;

struct heed_graph {
    heed_parameters *parameters;
    const heed_nn_kernels *kernels;
    heed_isa isa;
    int threads;
    heed_nn_node *node;
    int nodes, capacity;
    int segments;
    int segment; /* open one, 0: none */
    heed_status failed;
    char message[512];
    heed_variable loss;
    heed_step *step;
    int steps, forward_steps;
    heed_life *life;
    int lives;
    char *memory;
    size_t bytes;
    void *scratch;
    bool finished, training;
    bool bf16; /* linear maps and products round what they multiply */
    uint64_t step_number;
    int64_t state_floats; /* of all recurrences */
    float *states;        /* the caller's, or NULL */
    heed_watch watch;
};

/* What an operation is given while it runs. */
struct heed_work {
    const heed_graph *graph;
    const heed_nn_node *node;
    const heed_nn_kernels *kernels;
    int threads;
    const void *in[HEED_NN_INPUTS];
    void *out;
    const float *dout;
    float *din[HEED_NN_INPUTS]; /* NULL: not wanted */
    bool add[HEED_NN_INPUTS];   /* add to what is there */
    void *saved, *scratch;
};

/* Recurrences go on from these states, one behind the other, and leave theirs there:
 * [heed_graph_state_floats], 0 before the first run. NULL: each run begins anew. Only where nothing runs
 * backward. */
int64_t heed_graph_state_floats(const heed_graph *graph);
void heed_graph_carry(heed_graph *graph, float *states);

/* Before nodes are made; such a graph runs forward only. */
void heed_graph_watch(heed_graph *graph, const heed_watch *watch);

/* A new node of this operation; the caller fills in the rest. NULL when an input failed (absent ones may be)
 * or memory is short. The pointer holds until the next node is made. */
heed_nn_node *heed_nn_make(heed_graph *graph, const heed_op *op, int ins, const heed_variable *in);
/* Its number, once shape and the rest are set: counts entries and decides whether a gradient is wanted. */
heed_variable heed_nn_done(heed_graph *graph, heed_nn_node *node);
/* The same, of one that no gradient goes through. */
heed_variable heed_nn_constant_done(heed_graph *graph, heed_nn_node *node);
/* Writes the first failure down. */
heed_variable heed_nn_fail(heed_graph *graph, heed_status status, const char *format, ...) HEED_PRINTF(3, 4);
/* Takes over heed_message(). */
heed_variable heed_nn_fail_message(heed_graph *graph, heed_status status);

static inline const heed_nn_node *heed_nn_at(const heed_graph *graph, heed_variable node)
{
    return &graph->node[node];
}

/* Input i of a node while the graph is made; NULL when it is absent. */
static inline const heed_nn_node *heed_nn_in(const heed_graph *graph, const heed_nn_node *node, int i)
{
    return node->in[i] >= 0 ? &graph->node[node->in[i]] : NULL;
}

void heed_nn_shape_of(heed_nn_node *node, const heed_nn_node *like);
/* "[2, 3]" */
typedef struct heed_shape_text {
    char text[100];
} heed_shape_text;
heed_shape_text heed_nn_shape_text(const heed_nn_node *node);

static inline int64_t heed_nn_last(const heed_nn_node *node)
{
    return node->rank ? node->shape[node->rank - 1] : 1;
}

/* Its entries, a row each. */
static inline int64_t heed_nn_rows(const heed_nn_node *node)
{
    const int64_t last = heed_nn_last(node);
    return last ? node->count / last : 0;
}

/* The node whose memory this one uses. */
heed_variable heed_nn_root(const heed_graph *graph, heed_variable node);

heed_status heed_graph_plan(heed_graph *graph);
/* Bytes of scratch, behind the operation's own, for gradients that cannot be added in place. */
size_t heed_step_room(const heed_graph *graph, const heed_step *step);
heed_status heed_parameter_gradient(heed_parameter *parameter);
heed_parameter *heed_parameters_make(heed_parameters *parameters, const char *name, int rank,
                                     const int64_t *shape, const heed_initial *initial);
uint64_t heed_parameters_seed(const heed_parameters *parameters);

/* Work on n entries in pieces that do not depend on the number of threads. */
enum { HEED_NN_PIECE = 8192 };
#define HEED_PRAGMA(text) _Pragma(#text)
#define HEED_NN_PIECES(threads, n, from, size)                                                               \
    HEED_PRAGMA(omp parallel for num_threads(threads) schedule(static) if ((n) > (size)))                    \
    for (int64_t from = 0; from < (n); from += (size))

/* to[cols] (+)= sum over rows: pieces of rows, each to a line of `partial`, then the lines in order. */
typedef void heed_row_piece(const heed_work *work, int64_t row0, int64_t row1, float *partial);
/* How many pieces, and bytes of all partial sums of `cols` numbers. */
int heed_nn_row_pieces(int64_t rows);
size_t heed_nn_partial_bytes(int64_t rows, int64_t cols);
void heed_nn_sum_pieces(const heed_work *work, int64_t rows, int64_t cols, heed_row_piece *piece);
/* Adds up the lines, `cols` of `stride` numbers from `from` on. */
void heed_nn_fold(const heed_work *work, int64_t rows, int64_t from, int64_t cols, int64_t stride, float *to,
                  bool add);

#endif
