/* Layers of transformers, a file each, made of operations of a graph. Parameters are called as in Hugging
 * Face's files of llama models, so that a trained model can be read as one. */
#ifndef HEED_NN_LAYERS_H
#define HEED_NN_LAYERS_H

#include <heed/nn.h>

typedef enum heed_layer_norm_kind {
    HEED_LAYER_RMS,
    HEED_LAYER_CENTRED,
    HEED_LAYER_NO_NORM
} heed_layer_norm_kind;
typedef enum heed_positions_kind { HEED_POSITIONS_NONE, HEED_POSITIONS_LEARNED } heed_positions_kind;

/* Pictures instead of tokens: squares of `patch` by `patch` pixels are what tokens are of texts. */
typedef struct heed_image {
    int64_t height, width, channels, patch; /* patch 0: no picture */
} heed_image;

/* Sizes and kinds of a stack of layers. */
typedef struct heed_transformer {
    int64_t batch, context;
    int64_t vocabulary, width, layers, heads, kv_heads, head_dim, hidden;
    const char *spec; /* of attention; `layers` prefixes count these layers */
    heed_layer_norm_kind norm;
    float norm_eps;
    heed_function function; /* of the feed-forward layer */
    bool gated;             /* it has a gate: swiglu, geglu, ... */
    bool bias;              /* of linear maps */
    bool tied;              /* the embedding is the last map too */
    bool qk_norm;           /* a norm of each head's query and key */
    bool after;             /* norms behind the layers instead of before */
    heed_positions_kind positions;
    float dropout;
    float deviation;                        /* of initial weights; 0: 0.02 */
    bool recompute;                         /* keep only the inputs of layers for the backward run */
    int64_t classes;                        /* above 0: a class of the whole text instead of tokens */
    bool hidden_only;                       /* neither tokens nor classes */
    int64_t encoder_layers, source_context; /* above 0: an encoder of another text, which layers attend to */
    const char *encoder_spec, *cross_spec;
    int reader; /* how layers read the encoder's text: 0 by cross_spec, else heed_reader_word */
    heed_image image;
    int64_t kv_every;  /* layers that read the keys and values of the first of them; 0, 1: each its own */
    int64_t shortcuts; /* heads of an attention over the states of all layers before the end; 0: none */
    bool judged;       /* by evaluations: not what learns */
} heed_transformer;

/* What layers give beside their result. */
enum { HEED_BESIDE = 64 };
typedef struct heed_beside {
    heed_variable loss;                /* a number that counts beside the loss; HEED_NO_INPUT: none */
    heed_variable chance[HEED_BESIDE]; /* log probabilities of what was drawn, [B] or [B, N]: REINFORCE */
    int chances;
    struct {
        const char *name;
        heed_variable value; /* a number */
    } measure[HEED_BESIDE];  /* what evaluations report, the mean over layers and batches */
    int measures;
    struct {
        const heed_form *form;
        heed_variable value;
    } left[HEED_BESIDE]; /* what layers of a form leave for later ones of it */
    int lefts;
} heed_beside;

/* What the graph of a model takes and gives. */
typedef struct heed_transformer_nodes {
    heed_variable tokens;   /* i32 [batch, context] */
    heed_variable segments; /* i32 [batch, context] or HEED_NO_INPUT */
    heed_variable places;   /* i32 [batch, context] positions or HEED_NO_INPUT: those of a text from 0 on */
    heed_variable *held;    /* keys and values [2] that later layers read, or NULL */
    heed_variable logits;   /* [batch, context, vocabulary], or [batch, classes] */
    heed_variable source, source_segments; /* i32 [batch, source_context], with an encoder */
    heed_variable pixels;                  /* [batch, height, width, channels], of pictures */
    heed_variable *last;  /* [3] queries, keys and values of the layer made last, before positions; or NULL */
    heed_variable hidden; /* [batch, context, width] behind the last norm */
    heed_beside *beside;  /* or NULL */
    const heed_variable *targets; /* i32 [batch, context] what is asked for, -1: nothing; or NULL */
    bool whole;                   /* layers that drop something keep all */
} heed_transformer_nodes;

/* A layer by a form of the stage `layer`: x [batch, context, width] to the same shape, without norm and
 * residual. */
typedef struct heed_layer_call {
    heed_graph *graph;
    const heed_form_state *form;
    const char *name; /* of its parameters */
    const heed_transformer *model;
    int64_t layer;
    const heed_transformer_nodes *nodes;
    heed_variable x;
    const char *spec; /* the other clauses */
} heed_layer_call;

typedef struct heed_layer_rule {
    heed_variable (*make)(const heed_layer_call *call);
    bool attends; /* the other clauses of the spec hold for the attention inside; else there are none */
} heed_layer_rule;

/* The form of `layer=` or `lowrank=` that holds for a layer, in `form`, and the spec without that clause in
 * `rest`, as long as `spec` with some to spare; form->form is NULL where there is none. */
enum { HEED_LAYER_REST = 2048 };
heed_status heed_layer_of_spec(const char *spec, int64_t layer, heed_form_state *form,
                               char rest[HEED_LAYER_REST]);

/* "NAME" below "PREFIX": "model.layers.0" and "mlp" make "model.layers.0.mlp". */
typedef struct heed_layer_name {
    char text[96];
} heed_layer_name;
heed_layer_name heed_layer_under(const char *prefix, const char *name);

/* NAME.weight [out, in], NAME.bias [out] of zeros. */
heed_variable heed_layer_linear(heed_graph *graph, const char *name, heed_variable x, int64_t out, bool bias,
                                float deviation);
heed_variable heed_layer_norm_rows(heed_graph *graph, const char *name, const heed_transformer *model,
                                   heed_variable x);
heed_variable heed_layer_attention(heed_graph *graph, const char *name, const heed_transformer *model,
                                   int64_t layer, const heed_transformer_nodes *nodes, heed_variable x);
heed_variable heed_layer_feed_forward(heed_graph *graph, const char *name, const heed_transformer *model,
                                      heed_variable x);
heed_variable heed_layer_block(heed_graph *graph, const heed_transformer *model, int64_t layer,
                               const heed_transformer_nodes *nodes, heed_variable x);
/* The same under a name, with attention to `memory` between its parts unless that is HEED_NO_INPUT. */
heed_variable heed_layer_block_named(heed_graph *graph, const char *name, const heed_transformer *model,
                                     int64_t layer, const heed_transformer_nodes *nodes, heed_variable x,
                                     heed_variable memory);
heed_variable heed_layer_cross(heed_graph *graph, const char *name, const heed_transformer *model,
                               int64_t layer, const heed_transformer_nodes *nodes, heed_variable x,
                               heed_variable memory);
/* "attend", "gmm", ...; NULL beyond the last. */
const char *heed_reader_word(int i);
/* By a reader other than the first. */
heed_variable heed_layer_read(heed_graph *graph, const char *name, const heed_transformer *model,
                              heed_variable x, heed_variable memory);
/* What an encoder makes of nodes->source, which it makes: [batch, source_context, width]. */
heed_variable heed_layer_encoder(heed_graph *graph, const heed_transformer *decoder,
                                 heed_transformer_nodes *nodes, heed_variable table);
/* Patches of nodes->pixels, which it makes: [batch, context, width], row by row of the picture. */
heed_variable heed_layer_patches(heed_graph *graph, const heed_transformer *model,
                                 heed_transformer_nodes *nodes);

/* A recurrence with as many kv heads as heads, and nothing to read yet but q, k and v. */
heed_nn_recurrence heed_layer_recurrence(const heed_transformer *model, int64_t layer, const char *spec);

/* What layers by a form are put together from; parts.c. B, N, H, d: batch, context, heads, head_dim. */
heed_variable heed_part_map(const heed_layer_call *call, const char *part, heed_variable x, int64_t out);
heed_variable heed_part_out(const heed_layer_call *call, heed_variable y); /* o_proj: to [B, N, width] */
heed_variable heed_part_parameter(const heed_layer_call *call, const char *part, int rank,
                                  const int64_t *shape, heed_initial_kind kind, float size);
/* [B, N, heads d] to [B, heads, N, d], and back. */
heed_variable heed_part_heads(const heed_layer_call *call, heed_variable x, int64_t heads);
/* The layer's input through a map of its own, as so many heads of the model's size. */
heed_variable heed_part_projected(const heed_layer_call *call, const char *part, int64_t heads);
heed_variable heed_part_merge(const heed_layer_call *call, heed_variable x);
/* [N, N]: `open` where the key is seen, `closed` where it is later than the query (causal). */
heed_variable heed_part_mask(const heed_layer_call *call, bool causal, float open, float closed);
/* softmax(scores + mask) [B, heads, N, N] */
heed_variable heed_part_weights(const heed_layer_call *call, heed_variable scores, bool causal);
/* scale a b^T of the last two dimensions */
heed_variable heed_part_scores(const heed_layer_call *call, heed_variable a, heed_variable b, float scale);
/* Entries of the last dimension, each `times` times in turn (x0 x0 x1 x1), or all of them `times` times one
 * after another (x0 x1 x0 x1). */
heed_variable heed_part_each(const heed_layer_call *call, heed_variable x, int64_t times);
heed_variable heed_part_repeat(const heed_layer_call *call, heed_variable x, int64_t times);
/* x / sum of its last dimension */
heed_variable heed_part_over_sum(const heed_layer_call *call, heed_variable x);
/* Attention by the other clauses of the spec; as heed_nn_attend. */
heed_variable heed_part_attend(const heed_layer_call *call, const char *part, heed_variable q,
                               heed_variable k, heed_variable v, int64_t heads, int64_t kv_heads);

/* Rows of x [..., c] times numbers [...]. */
heed_variable heed_part_times(const heed_layer_call *call, heed_variable x, heed_variable numbers);
/* Constants: zeros of a shape, and [n, n] with ones on its diagonal. */
heed_variable heed_part_zeros(const heed_layer_call *call, int rank, const int64_t *shape);
heed_variable heed_part_identity(const heed_layer_call *call, int64_t n);
/* Queries with m keys of their own each: q [B, n, H d] and k [B, n m, H d] to scores [B n, H, 1, m], divided
 * by sqrt d; and weights of that shape with v [B, n m, H d] to [B, n, H d]. */
heed_variable heed_part_own_scores(const heed_layer_call *call, heed_variable q, heed_variable k);
heed_variable heed_part_own_read(const heed_layer_call *call, heed_variable weights, heed_variable v);
/* The mean of all entries: a number. */
heed_variable heed_part_mean(const heed_layer_call *call, heed_variable x);

/* x [B, 1, c] at n places: [B, n, c]. */
heed_variable heed_part_spread(const heed_layer_call *call, heed_variable x, int64_t n);
/* Numbers of keys m [B, M] for each head and query: [B, heads, n, M]. */
heed_variable heed_part_over_keys(const heed_layer_call *call, heed_variable m, int64_t heads, int64_t n);
/* Cells x [B, frames rows cols, c] `times` as high and wide, each repeated: [B, frames rows cols times^2, c].
 */
heed_variable heed_part_enlarge(const heed_layer_call *call, heed_variable x, int64_t frames, int64_t rows,
                                int64_t cols, int64_t times);

/* [batch, n] from 0 to 1, others in each layer, and always the same. */
heed_variable heed_part_chances(const heed_layer_call *call, int64_t batch, int64_t n);
/* Rows [B, heads, n, d] turned by rope (base 10000) as those of a text's tokens 0 to n - 1. */
heed_variable heed_part_rope(const heed_layer_call *call, heed_variable x);
/* A constant first, first + step, first + 2 step, ... */
heed_variable heed_part_filled(const heed_layer_call *call, int rank, const int64_t *shape, float first,
                               float step);
/* x [...] as [..., 1] */
heed_variable heed_part_column(const heed_layer_call *call, heed_variable x);
/* Places i32 of the `count` best scores [B, heads, n] and (or NULL) of the others, both in rising order; of
 * equal ones the earlier is better. */
void heed_part_best(const heed_layer_call *call, heed_variable score, int64_t count, heed_variable *best,
                    heed_variable *rest);

/* Beside the result; nothing where nobody asks. */
void heed_part_loss(const heed_layer_call *call, heed_variable number, float weight);
void heed_part_chance(const heed_layer_call *call, heed_variable log_probability);
void heed_part_measure(const heed_layer_call *call, const char *name, heed_variable number);
/* Leaves something for later layers of the same form; the last thing left, i back, or HEED_NO_INPUT. */
void heed_part_leave(const heed_layer_call *call, heed_variable x);
heed_variable heed_part_left(const heed_layer_call *call, int back);

/* Tokens that are cells of a picture or clip, from the first token on. */
typedef struct heed_grid {
    int64_t frames, rows, cols, cells; /* cells 0: it does not fit, and the graph says so */
} heed_grid;
/* Sizes of 0 are those of the picture, whose frames stand one above the other, or of a square. */
heed_grid heed_part_grid(const heed_layer_call *call, int64_t frames, int64_t rows, int64_t cols);
/* [B, N] 1 where a token is `level` or more, or a pixel of its patch; else 0. */
heed_variable heed_part_marked(const heed_layer_call *call, int64_t level);

/* Coordinates of the cells of a grid, [cells points, dims] of the last `dims` of frame, row and column, each
 * cell `points` times, plus what `move` adds to those of point i, or NULL. */
heed_variable heed_part_places(const heed_layer_call *call, const heed_grid *grid, int64_t points, int dims,
                               void (*move)(const heed_grid *grid, int64_t point, float *place));

#define HEED_CAUSAL_ARG                                                                                      \
    {                                                                                                        \
        .name = "causal", .kind = HEED_ARG_CHOICE, .options = heed_yes_no,                                   \
        .summary = "whether a token sees later ones"                                                         \
    }
extern const heed_option heed_yes_no[];

/* Sizes of a grid that tokens are cells of, as heed_part_grid takes them. */
#define HEED_FRAMES_ARG                                                                                      \
    {                                                                                                        \
        .name = "frames", .kind = HEED_ARG_INT, .value = 1, .least = 1, .most = 4096,                        \
        .summary = "of the clip"                                                                             \
    }
#define HEED_ROWS_ARG(of)                                                                                    \
    {                                                                                                        \
        .name = "rows", .kind = HEED_ARG_INT, .most = 4096,                                                  \
        .summary = of "; 0: the model's picture, or a square"                                                \
    }
#define HEED_COLS_ARG                                                                                        \
    {                                                                                                        \
        .name = "cols", .kind = HEED_ARG_INT, .most = 4096, .summary = "likewise"                            \
    }
#define HEED_JOINTS_ARG                                                                                      \
    {                                                                                                        \
        .name = "joints", .kind = HEED_ARG_INT, .most = 4096,                                                \
        .summary = "tokens of a pose a frame, behind the cells"                                              \
    }

/* Tokens to logits. nodes->segments (which an encoder needs) and nodes->places are inputs of the graph or
 * HEED_NO_INPUT. Failures show
 * when the graph is finished. */
void heed_transformer_make(heed_graph *graph, const heed_transformer *model, heed_transformer_nodes *nodes);

#endif
