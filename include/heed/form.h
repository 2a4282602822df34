/**
 * @file form.h
 * What a form of attention is: a descriptor with a few hooks. Built-in forms and a user's own use the same
 * one.
 *
 * A form is one choice at one stage of
 *     out = read(normalise(select(where(position(score(q, k))))), v)
 * and lives in one file. It fills the hooks that it needs and knows nothing of the kernels. All hooks work on
 * tiles, rows or lists, never on single elements, so that the compiler vectorises them; none allocates. Where
 * a hook computes, its
 * `_backward` twin computes the gradient, ADDING to the buffers it is given.
 */
#ifndef HEED_FORM_H
#define HEED_FORM_H

#include <heed/base.h>
#include <heed/maths.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEED_MAX_ARGS 10   /**< arguments of a form */
#define HEED_MAX_SUBARGS 6 /**< arguments of an option of an argument, as in scaling=yarn(4, 4096) */
#define HEED_MAX_PARAMS 8  /**< learnable tensors of a form */

/** The stages, in the order in which a spec is printed. */
typedef enum heed_stage {
    HEED_SCORE = 0,
    HEED_POSITION,
    HEED_WHERE,
    HEED_SELECT,
    HEED_NORMALISE,
    HEED_HEADS,
    HEED_READ,
    HEED_SCAN,
    HEED_LOWRANK,
    HEED_CACHE,
    HEED_LAYER,
    HEED_STAGES
} heed_stage;

/** "score", "position", ...; NULL for a value that is no stage. */
HEED_API const char *heed_stage_name(heed_stage stage);

/** What an argument may be. */
typedef enum heed_arg_kind {
    HEED_ARG_FLOAT = 0,
    HEED_ARG_INT,    /**< a whole number; 2.5 is refused */
    HEED_ARG_CHOICE, /**< one of `options` by name; the options take no arguments */
    HEED_ARG_OPTION, /**< one of `options`, with arguments of its own: scaling=linear(4) */
} heed_arg_kind;

typedef struct heed_arg heed_arg;

/** One name that a CHOICE or OPTION argument may take. A list of options ends with name == NULL. */
typedef struct heed_option {
    const char *name;
    const heed_arg *args; /**< FLOAT and INT only; ends with name == NULL; NULL when there are none */
} heed_option;

/** One argument of a form. A list of arguments ends with name == NULL. */
struct heed_arg {
    const char *name;
    heed_arg_kind kind;
    double value; /**< default; for CHOICE and OPTION the index of the default option, -1 for none given */
    double least, most;   /**< closed range of FLOAT and INT; both 0 means no bound */
    bool above;           /**< the value must be strictly above `least` */
    bool required;        /**< there is no default */
    const char *computed; /**< a default that depends on the problem, as it is printed: "1/sqrt(D)"; value is
                             NaN then */
    const heed_option *options;
    const char *summary;
};

/** The value of one argument after parsing. */
typedef struct heed_value {
    double number; /**< FLOAT, INT; for CHOICE and OPTION the index of the option, -1 for none */
    double sub[HEED_MAX_SUBARGS]; /**< arguments of the option */
    bool given;                   /**< written in the spec */
} heed_value;

struct heed_form_state;

/**
 * One learnable tensor. `shape` lists sizes separated by commas: H (query heads), G (kv heads), D (dim), E
 * (value dim), N (queries), M (keys), B (batch), the name of an argument, a number, or "2*max+1"; "B|1" means
 * either of the two.
 */
typedef struct heed_param {
    const char *name;
    const char *shape;
    float initial;                                              /**< every entry, unless `fill` is set */
    void (*fill)(const struct heed_form_state *form, float *x); /**< initial values */
    bool required; /**< there is no initial value: it must be given */
    const char *summary;
} heed_param;

/** The sizes that a form sees when a plan is made. */
typedef struct heed_sizes {
    int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
    bool causal;           /**< `causal` is a factor of the outermost `&` of `where` */
    int64_t layer, layers; /**< of recurrences */
    double score_scale;    /**< the score's scale where it has HEED_SHARES_SCALE, else 1/sqrt(dim) */
} heed_sizes;

/** A form in a plan, with its arguments resolved and, while executing, its parameters bound. */
typedef struct heed_form_state {
    const struct heed_form *form;
    heed_value arg[HEED_MAX_ARGS];
    heed_sizes sizes;
    const float *param[HEED_MAX_PARAMS]; /**< dense f32 in the shape below; bound while executing */
    float *grad[HEED_MAX_PARAMS]; /**< gradients to add to; this piece of work's own; NULL when not wanted */
    int64_t shape[HEED_MAX_PARAMS][4]; /**< actual shape, rank 4 or less, padded with 1 on the right */
    void *table;    /**< `table_bytes` of constant memory filled by `setup`; 64-byte aligned */
    float *derived; /**< `derived_floats`, filled by `begin` at each execution */
    bool backward;  /**< the plan will run backward */
} heed_form_state;

/** Tensors beside q, k and v that `where` forms read. All NULL when absent. Strides in elements. */
typedef struct heed_inputs {
    const int32_t *query_segment, *key_segment;       /**< [batch or 1][N], [batch or 1][M] */
    int64_t query_segment_stride, key_segment_stride; /**< per batch entry; 0 when shared */
    const uint8_t *mask; /**< [batch or 1][H or 1][N][M], last dimension contiguous */
    int64_t mask_batch_stride, mask_head_stride, mask_row_stride;
    const int32_t *key_end;   /**< [batch] 1 + the largest position of the keys of this kv head that exist */
    const int32_t *key_count; /**< [batch] keys of this kv head that exist */
    int64_t keys;             /**< M */
} heed_inputs;

/** Rows of queries or keys being prepared. */
typedef struct heed_rows {
    int count, dim; /**< rows; entries of `in` a row */
    int batch,
        head; /**< query head (for keys too, where the form prepares keys by query head; else kv head) */
    const int32_t *pos; /**< [count] positions */
    bool contiguous;    /**< pos[i] == pos[0] + i */
    const float *in;    /**< [count][in_stride] */
    int64_t in_stride;
    float *out; /**< [count][out_stride], never the memory of `in`; backward: gradient of the output, read */
    int64_t out_stride;
    float *din; /**< backward only: [count][din_stride] gradient of the input, to add to */
    int64_t din_stride;
} heed_rows;

/**
 * A tile: scores of `rows` queries of one head against `cols` keys. cols is a multiple of 16; entries beyond
 * the real keys (and rows beyond the real queries) are padding with valid positions, closed by the kernel,
 * whose gradients are 0. A closed pair has score -inf from `select` on; before that closed pairs hold any
 * number, and `open` tells.
 */
typedef struct heed_tile {
    int rows, cols;
    int batch, head, kv_head;
    int64_t query0, key0;     /**< indices of the corner */
    const int32_t *query_pos; /**< [rows] */
    const int32_t *key_pos;   /**< [cols] */
    bool contiguous;          /**< both positions go up by one from entry to entry */
    float *score;             /**< [rows][stride] */
    int64_t stride;           /**< of score, dscore, open, in entries */
    const uint8_t
        *open; /**< [rows][stride] 1 where the pair is open, NULL when all are; for whole-row forms */
    /** [rows][query_stride] prepared queries, as the score meets them: where it is a product they carry its
     *  scale, so that sum_d query[d] key[d] is the score; to a `pair` hook, on whose sums the kernel puts the
     *  scale, and beside one, they come without. */
    const float *query;
    int64_t query_stride;
    const float *key; /**< [prepared dim][key_stride] prepared keys, transposed; for `pair`, and for `adjust`
                         of position forms without HEED_WHOLE_ROW */
    int64_t key_stride;
    int dim;          /**< prepared dim */
    const float *aux; /**< [rows][aux_floats] made by this form's query_aux */
    const heed_inputs *inputs;
    const float
        *base; /**< for `weights`: [rows] to take off the logits first, norm being `rest` then; or NULL */
    /* backward only */
    float *dscore; /**< [rows][stride] gradient of what the hook put out, to turn into that of its input */
    float
        *dquery; /**< [rows][query_stride] to add the gradient of `query` to; of position forms and `pair` */
    float *dkey; /**< [prepared dim][key_stride] to add the gradient of `key` to, where that is given */
    float *daux; /**< [rows][aux_floats] to add to */
    const float *before; /**< [rows][stride] scores before this hook, for forms with HEED_KEEPS_INPUT */
} heed_tile;

/** A run of queries, for deciding which key blocks they can see. */
typedef struct heed_query_range {
    int batch, head;
    int64_t first, last;      /**< indices, last included */
    int32_t pos_min, pos_max; /**< of their positions */
    const heed_inputs *inputs;
} heed_query_range;

/** Key blocks: block b holds the keys with indices first + b size ... clipped to `keys`. */
typedef struct heed_key_blocks {
    int count, size;
    int64_t first, keys;
    const int32_t *pos_min, *pos_max; /**< [count] */
} heed_key_blocks;

/** State of a key block for a run of queries. */
enum { HEED_CLOSED = 0, HEED_PARTLY = 1, HEED_OPEN = 2 };

/** Running sums of the rows of a tile; the arrays have one entry a row. */
typedef struct heed_row_sums {
    float *max;     /**< largest logit so far; -inf at the start */
    float *sum;     /**< sum of exp(logit - max) over the open keys so far; 0 at the start */
    float *count;   /**< open keys so far; kept by the kernel only for forms with HEED_COUNTS_OPEN */
    float *rescale; /**< set by `online`: factor for what was accumulated before this tile */
    float
        *moment; /**< NULL, or sum of exp(logit - max) (logit - max) so far, from which the entropy follows */
} heed_row_sums;

/** What is left of a row when all tiles have been seen. */
typedef struct heed_row_end {
    float scale; /**< weight = scale * what `online` left in the tile, last rescaled */
    float norm;  /**< one number from which `weights` makes final weights out of logits; saved for backward */
    float
        rest; /**< with HEED_KEEPS_MOMENT: norm less the largest logit, so that large logits lose no digits */
} heed_row_end;

/** One whole row of scores, for select and for normalisers that need the row. */
typedef struct heed_row {
    int cols;
    int batch, head;
    int64_t query; /**< index */
    int32_t pos;
    const int32_t *key_pos; /**< [cols] */
    float *score; /**< [cols]; -inf where closed. A selector closes more; a normaliser puts weights here */
    float *work;  /**< [2 cols] scratch */
    const float
        *dweight;  /**< backward of a normaliser: [cols] gradient of the weights; `score` holds the weights */
    float *dscore; /**< backward of a normaliser: [cols] gradient of the logits, to set */
    float *aux;    /**< 4 floats a normaliser may save forward and read backward */
    const float *query_row; /**< [dim] prepared query */
    int dim;                /**< entries of query_row */
    const float *summary;   /**< what this selector's `summarise` made of the keys */
    /** For selectors that decide by blocks: what `block_query` made of query_row; and where they choose by
     *  group, of the queries of this index of all query heads that share the kv head. */
    const float *const *block_query;
    int block_queries;
} heed_row;

/** How a selector decides that looks at whole blocks of keys and not at single scores. */
typedef struct heed_block_rule {
    int64_t keys; /**< in a block: block b holds the keys b keys .. b keys + keys - 1 */
    bool
        by_group; /**< all query heads that share a kv head choose together: by the largest of their values */
    int queries;  /**< above 1: queries with the same floor(index / queries) have the values of their mean */
    /** Queries of each head whose weights over all keys are shown to `observe` before any block is chosen:
     * the last `observes`, or if `observes_share` is above 0 that share of all, the last one among them,
     * evenly. */
    int observes;
    double observes_share;
    /** Queries with the same floor(index / queries) choose together once, and no values are made but those
     * that `choose_blocks` asks for by `look`: the largest of these queries' values. */
    bool searches;
} heed_block_rule;

/** Weights of some of a head's queries. */
typedef struct heed_observed {
    int rows, blocks;
    int64_t keys;
    const int64_t *current; /**< [rows] block of the last open key; -1 where none is open */
    const float *weight;    /**< [rows][stride] softmax over the open keys */
    int64_t stride;
    float *estimate; /**< [estimate_floats] to add to; 0 at first */
} heed_observed;

/** The end of observing. */
typedef struct heed_settled {
    int blocks;
    const float *value; /**< [blocks] values for the mean of the observed queries; -inf where none sees any
                           key; NULL without block_query */
    float *estimate;
    float *work; /**< [3 blocks] */
} heed_settled;

/** One row of values of blocks, or the rows of queries that choose together. */
typedef struct heed_block_row {
    int blocks;  /**< up to the current one */
    int current; /**< the block that holds the row's last open key */
    float
        *value;  /**< [blocks] never NaN; -inf where no key is open. Blocks that are not chosen become -inf */
    float *work; /**< [2 blocks] scratch; [4 blocks] where the rule searches */
    const float *estimate; /**< of the head, where the rule observes */
    /* where the rule searches; value is 0 where some query sees a key */
    int earliest; /**< the block of the first last open key among the queries */
    /** value[i] of block[i], a list of `count`; never NaN. */
    void (*look)(const struct heed_block_row *row, const int32_t *block, int count, float *value);
    void *looker; /**< the kernel's */
} heed_block_row;

enum heed_form_flags {
    HEED_WHOLE_ROW = 1,        /**< adjust needs complete rows */
    HEED_KEEPS_INPUT = 2,      /**< adjust_backward reads tile->before */
    HEED_KEEPS_OUTPUT = 32768, /**< adjust_backward reads tile->score */
    HEED_KEYS_BY_HEAD = 4,     /**< prepare_key depends on the query head */
    HEED_NEEDS_DOT = 8,        /**< only with score=dot */
    HEED_NEEDS_CAUSAL = 16,    /**< only where `causal` is a factor of `where` */
    HEED_RAW_SCORES = 32,  /**< adjust reads scores to which no other form has added yet, so it goes first */
    HEED_COUNTS_OPEN = 64, /**< a normaliser that reads row_sums->count */
    HEED_NEEDS_SEGMENTS = 128, /**< reads inputs->query_segment and key_segment */
    HEED_NEEDS_MASK = 256,     /**< reads inputs->mask */
    HEED_MIXES_HEADS = 512,    /**< `mix_scores`, `mix_weights` see all heads */
    HEED_ROTATES = 1024,       /**< a position form of which a spec may hold one only */
    HEED_SHARES_SCALE =
        16384, /**< a score whose scale is also that of position forms which add products of the query */
    HEED_SCATTERS = 8192,       /**< a `where` whose open blocks do not lie together */
    HEED_KEEPS_MOMENT = 4096,   /**< a normaliser whose weights are a constant times exp(logit - max): moment
                                   gives the entropy */
    HEED_SCALES_ROWS = 65536,   /**< prepare_key multiplies a row by a number that depends on its length, so
                                   rotated rows may be rotated further after it */
    HEED_SEES_BY_HEAD = 131072, /**< a `where` that differs from query head to query head */
    HEED_MODIFIER =
        2048, /**< a normalise form that changes logits by `adjust` and chains before another (softcap) */
};

/** What a form is shown of one kv head of one layer while a model reads a window of text. */
typedef struct heed_shown {
    int kv_head, group; /**< the query heads kv_head group .. kv_head group + group - 1 share it */
    int64_t tokens;     /**< of the window */
    int64_t span;       /**< query i sees the keys max(0, i - span + 1) .. i */
    int dim, value_dim;
    const float *query; /**< [group][tokens][dim] as they are compared: query·key is the score */
    const float *key;   /**< [tokens][dim] as they are compared */
    const float *value; /**< [tokens][value_dim] */
} heed_shown;

/** How a form finds tensors of its own on a text that a model reads, layer by layer, window by window. It
 * knows no model: it gathers sums, and makes its tensors of them. */
typedef struct heed_calibration {
    /** Earlier layers attend with the form as calibrated so far; else the model reads with its own attention.
     */
    bool in_force;
    /** Tokens of a window; NULL: any number. */
    int64_t (*window)(const heed_form_state *form);
    /** Doubles that it gathers of a layer, 0 at first, and floats of work for a window. */
    int64_t (*sums)(const heed_form_state *form);
    int64_t (*work)(const heed_form_state *form, int64_t tokens);
    /** Adds a window of one kv head to the layer's sums. Called for several kv heads at once, so it touches
     * only what belongs to its own. */
    void (*gather)(const heed_form_state *form, const heed_shown *shown, double *sums, float *work);
    /** The layer's tensors, in the order of `params`, from the sums of all windows so far. */
    heed_status (*settle)(const heed_form_state *form, const double *sums, float *const *param);
    /** A number that tells what was found of a layer, from its tensors in form->param, and its name; or NULL.
     */
    double (*measure)(const heed_form_state *form);
    const char *measured;
} heed_calibration;

/** Scores of query @p i of the group's head @p h against the keys it sees, from the first one that it sees
 * on, which is returned; out [tokens]. */
static inline int64_t heed_shown_scores(const heed_shown *shown, int h, int64_t i, float *out)
{
    const int64_t first = i + 1 > shown->span ? i + 1 - shown->span : 0;
    const float *query = shown->query + (h * shown->tokens + i) * shown->dim;
    for (int64_t j = first; j <= i; j++) {
        const float *key = shown->key + j * shown->dim;
        float sum = 0;
        for (int c = 0; c < shown->dim; c++)
            sum += query[c] * key[c];
        out[j - first] = sum;
    }
    return first;
}

/** A form. Zero the rest: `const heed_form mine = {.name = ..., ...}`. */
typedef struct heed_form {
    const char *name; /**< lower case, underscores, unique in its stage */
    heed_stage stage;
    const char *summary; /**< one line */
    const char *formula; /**< one line */
    const char *source;  /**< paper */
    const char *row;     /**< catalogue rows it serves, "001.004", or NULL */
    unsigned flags;
    const heed_arg *args;     /**< ends with name == NULL; NULL when there are none */
    const heed_param *params; /**< ends with name == NULL; NULL when there are none */

    /* once, when the plan is made */
    /** Fills in arguments whose default is computed and checks them against the sizes. */
    heed_status (*resolve)(heed_form_state *form);
    /** Bytes of constant memory that `setup` fills. */
    size_t (*table_bytes)(const heed_form_state *form);
    void (*setup)(heed_form_state *form);
    /** score: the factor that the kernel puts on the product of prepared rows (NULL: 1). */
    double (*scale)(const heed_form_state *form);
    /** score: entries of a prepared row, when it is not that of the input (NULL: the same). */
    int (*prepared_dim)(const heed_form_state *form, int dim);

    /* once an execution */
    int64_t (*derived_floats)(const heed_form_state *form);
    /** Checks parameter values and fills `derived`. */
    heed_status (*begin)(const heed_form_state *form);

    /* score, position: once a block of rows, reused by every tile that meets it */
    void (*prepare_query)(const heed_form_state *form, const heed_rows *rows);
    void (*prepare_query_backward)(const heed_form_state *form, const heed_rows *rows);
    void (*prepare_key)(const heed_form_state *form, const heed_rows *rows);
    void (*prepare_key_backward)(const heed_form_state *form, const heed_rows *rows);
    /** Moves prepared keys by rows->pos[i] places: prepare_key at p, then this by d, is prepare_key at p + d.
     * NULL where there is no such motion: a position form that prepares keys cannot be moved then. */
    void (*move_key)(const heed_form_state *form, const heed_rows *rows);
    /** Extra floats a query row, made from q as given (not rotated), for `adjust`. */
    int (*aux_floats)(const heed_form_state *form);
    void (*query_aux)(const heed_form_state *form, const heed_rows *rows);
    void (*query_aux_backward)(const heed_form_state *form, const heed_rows *rows);

    /* score: instead of the product: prepared rows in, a tile of scores out */
    void (*pair)(const heed_form_state *form, heed_tile *tile);
    void (*pair_backward)(const heed_form_state *form,
                          heed_tile *tile); /**< reads dscore; adds to dquery, dkey */

    /* position, normalise modifiers: change a tile in place */
    void (*adjust)(const heed_form_state *form, heed_tile *tile);
    /** Turns dscore in place into the gradient of the input; where it is 0 the pair may be closed, the query
     *  or key NaN, and it must stay 0. With HEED_KEEPS_INPUT tile->before holds what `adjust` was given, with
     *  HEED_KEEPS_OUTPUT tile->score what it put out. NULL: the gradient passes through unchanged. */
    void (*adjust_backward)(const heed_form_state *form, heed_tile *tile);
    /** Or, for biases that depend on distance and head only: the biases of a list of distances. */
    void (*bias)(const heed_form_state *form, int head, const int32_t *distance, int n, float *out);
    void (*bias_backward)(const heed_form_state *form, int head, const int32_t *distance, int n,
                          const float *dbias);

    /* where: known before the data */
    /** States of key blocks for a run of queries. HEED_PARTLY is always a right answer; NULL: all are. */
    void (*blocks)(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state);
    /** open[i stride + j] = 1 or 0 for each pair of the tile. */
    void (*mask)(const heed_form_state *form, const heed_tile *tile, uint8_t *open);

    /* select: from the data */
    /** Floats of summary of the first `keys` keys of one kv head, made from prepared keys added in runs. With
     *  more keys the summary grows at its end. With `block_rule` it is a list of as many floats a block. */
    int64_t (*summary_floats)(const heed_form_state *form, int dim, int64_t keys);
    void (*summarise)(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary);
    /** Closes keys of a row by writing -inf. NaN scores never reach it. */
    void (*choose)(const heed_form_state *form, heed_row *row);
    /** Of selectors that decide by blocks of keys, so that the other blocks need not be read: the rule, and
     * the choice. The value of a block is the product of its summary with what `block_query` makes of a
     * prepared query [dim] of a query head (with its scale): as many floats as a block's summary has.
     * Together they choose what `choose` chooses. A block whose value is NaN, of which nothing is known,
     * comes first. */
    heed_block_rule (*block_rule)(const heed_form_state *form);
    void (*block_query)(const heed_form_state *form, int head, const float *query, int dim, float *out);
    void (*choose_blocks)(const heed_form_state *form, heed_block_row *row);
    int64_t (*estimate_floats)(const heed_form_state *form, int64_t blocks);
    void (*observe)(const heed_form_state *form, const heed_observed *seen);
    void (*settle)(const heed_form_state *form, const heed_settled *seen); /* may be NULL */
    /** Of a first selector by which queries take from what later ones see of a key: the head that votes, and
     * vote[j] of a row of its scores, 0 where they are -inf. The sums of the votes of all earlier queries, by
     * index, are taken off the scores of every head. With HEED_MIXES_HEADS. */
    int (*voter)(const heed_form_state *form);
    void (*vote)(const heed_form_state *form, const heed_row *row, float *vote);
    /** Adds to dscore the gradient of the row's scores from that of its votes. */
    void (*vote_backward)(const heed_form_state *form, const heed_row *row, const float *dvote,
                          float *dscore);

    /* normalise: online over tiles, or by whole rows */
    /** Logits to unnormalised weights in place; keeps max and sum (of which lse is made) whatever the weights
     * are. */
    void (*online)(const heed_form_state *form, heed_tile *tile, heed_row_sums *sums);
    void (*finish)(const heed_form_state *form, int head, int rows, const heed_row_sums *sums,
                   heed_row_end *end);
    /** Logits to final weights in place, from the saved norms, one a row. */
    void (*weights)(const heed_form_state *form, heed_tile *tile, const float *norm);
    /** dscore: gradient of weights in, of logits out; score holds the weights; delta[i] = sum of weight * its
     * gradient. */
    void (*weights_backward)(const heed_form_state *form, heed_tile *tile, const float *norm,
                             const float *delta);
    /** Once a row and head: what the row gives to parameters that sit outside the keys (a sink). */
    void (*norm_backward)(const heed_form_state *form, int head, int rows, const float *norm,
                          const float *delta);
    void (*whole_row)(const heed_form_state *form, heed_row *row);
    void (*whole_row_backward)(const heed_form_state *form, heed_row *row);

    /* heads: rows of all heads at once; x[h] points at [rows][stride] of head h */
    void (*mix_scores)(const heed_form_state *form, float *const *x, int rows, int cols, int64_t stride,
                       float *work);
    void (*mix_scores_backward)(const heed_form_state *form, const float *const *x, float *const *dx,
                                int rows, int cols, int64_t stride, float *work);
    void (*mix_weights)(const heed_form_state *form, float *const *x, int rows, int cols, int64_t stride,
                        float *work);
    void (*mix_weights_backward)(const heed_form_state *form, const float *const *x, float *const *dx,
                                 int rows, int cols, int64_t stride, float *work);

    /* read: after the values are summed; out [rows][stride] for queries query0... of one head */
    void (*output)(const heed_form_state *form, int batch, int head, int64_t query0, int rows, float *out,
                   int64_t stride);
    /** `before` is the output before the gate; dout: gradient after the gate in, before it out. */
    void (*output_backward)(const heed_form_state *form, int batch, int head, int64_t query0, int rows,
                            const float *before, float *dout, int64_t stride);

    /* select: queries and keys that meet, by lists; see gather.h */
    const struct heed_gather_rule *gathers;

    /* select: a choice that outlives an execution; see recall.h */
    const struct heed_recall *recall;

    /* cache: what is kept, and how pages are stored as they age; see policy.h */
    const struct heed_policy *policy;
    const struct heed_storage *storage;

    /** How its tensors are found on a model; NULL where they are not. */
    const heed_calibration *calibration;

    /* scan: what enters the recurrence; see scan.h */
    const struct heed_scan_rule *scan;

    /* layer: what stands in place of attention between the norms of a trained model */
    const struct heed_layer_rule *layer;
} heed_form;

/** Argument @p i as a whole number, held to the range of int32. */
static inline int32_t heed_arg_int(const heed_form_state *form, int i)
{
    const double x = form->arg[i].number;
    return x > 2147483647.0 ? 2147483647 : x < -2147483647.0 ? -2147483647 : (int32_t)x;
}

/** Argument @p i as a float. */
static inline float heed_arg_float(const heed_form_state *form, int i)
{
    return (float)form->arg[i].number;
}

#define HEED_JOIN_(a, b) a##b
#define HEED_JOIN(a, b) HEED_JOIN_(a, b)
#ifndef HEED_ISA
#define HEED_ISA
#endif
/** The symbol of a built-in form in the build for one instruction set: `const heed_form
 * HEED_FORM(position_alibi) = {...}`. */
#define HEED_FORM(name) HEED_JOIN(HEED_JOIN(heed_, name), HEED_ISA)

#ifdef __cplusplus
}
#endif
#endif
