/**
 * @file scan.h
 * Attention by a state that is carried along, instead of scores: linear attention and its kin.
 *
 * Every form of the stage `scan` is one recurrence on a matrix S [channels, value_dim] a kv head,
 *
 *     S_t = diag(keep_t) S_{t-1} + remove_t (probe_t^T S_{t-1}) + key_t v_t^T
 *     out_t = S_t^T query_t      (/ z_t^T query_t where the form normalises, z with v = 1)
 *
 * and says what enters it. Columns of S do not touch one another, so a piece of work is a few columns over
 * all tokens. Time is linear in the tokens; the state does not grow. Runs may be cut anywhere: a state that
 * is handed on gives the same bits, token by token (decoding) or all at once.
 */
#ifndef HEED_SCAN_H
#define HEED_SCAN_H

#include <heed/attend.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Tensors beside q, k and v that a form reads. */
enum heed_scan_reads {
    HEED_SCAN_READS_DECAY = 1, /**< decay [batch, G, N]: log of what stays of the state, 0 or less */
    HEED_SCAN_READS_GATE = 2,  /**< gate [batch, G, N, D]: the same for each channel */
    HEED_SCAN_READS_BETA = 4,  /**< beta [batch, G, N]: how much is written */
    HEED_SCAN_READS_ERASE = 8, /**< erase [batch, G, N, D]: directions that are taken out */
    HEED_SCAN_READS_RATE = 16, /**< rate [batch, G, N, D]: how much of each channel is taken out */
    HEED_SCAN_NO_KEYS = 32,    /**< k is not read: the form makes keys from the gate */
    HEED_SCAN_DELTA = 64,      /**< fills remove and probe */
    HEED_SCAN_NORMALISES = 128,
    /** The state is `channels` slots of a key and a value each, both written as `key` and `keep` say, and
     * read by a softmax over the slots; gate is [batch, G, N, channels], and queries keep their dim. */
    HEED_SCAN_SLOTS = 256,
    HEED_SCAN_NO_QUERIES = 512, /**< q is not read: the state is read as it is, so heads is kv_heads */
    /** beta is the score of the token, any number, and not a share. */
    HEED_SCAN_SCORES = 1024,
    HEED_SCAN_MIXES = 2048, /**< beta is a number of the head: the logit of what share the state has */
    /** gate is [batch, G, N, channels], raw numbers of which the form makes what it needs. */
    HEED_SCAN_RAW_GATE = 4096,
};

/** Tokens of one kv head: what is given, and what enters the recurrence. Of the backward run: the gradients
 * of what was made, and those of what was given, to add to. Those that are not read are NULL. */
typedef struct heed_scan_rows {
    int count, dim, channels;
    int64_t head, first;                  /**< kv head; index of the first token */
    const float *k, *gate, *erase, *rate; /**< [count][dim] */
    const float *decay, *beta;            /**< [count] */
    float *key, *keep, *remove, *probe;   /**< [count][channels] */
    float *dk, *dgate, *derase, *drate, *ddecay, *dbeta;
    float *carry; /**< [carried] of the rule: as the tokens before left it, 0 at first; to leave anew */
} heed_scan_rows;

/** Tokens of one kv head, for a form with a recurrence of its own. The backward run has all tokens, from an
 * empty state on; what it is to make is added to, and NULL where it is not wanted. */
typedef struct heed_scan_own {
    int count, dim, value_dim, group; /**< query heads of the kv head */
    int channels;
    const float *q, *k, *v;           /**< [group][count][dim], [count][dim], [count][value_dim] */
    const float *gate, *decay, *beta; /**< [count][channels], [count], [count] */
    float *state;                     /**< zeros at first */
    float *out;                       /**< [group][count][value_dim] */
    float *work;
    const float *dout;
    float *dq, *dk, *dv, *dgate, *ddecay, *dbeta;
} heed_scan_own;

/** A recurrence that is not the one above: it brings its own loops, which give the same bits wherever a run
 * is cut. `look` and `write` are not called. */
typedef struct heed_scan_loops {
    int64_t (*state)(const heed_form_state *form); /**< floats */
    int64_t (*work)(const heed_form_state *form, int64_t tokens, bool backward);
    void (*pass)(const heed_form_state *form, const heed_scan_own *own);
    void (*back)(const heed_form_state *form, const heed_scan_own *own);
} heed_scan_loops;

/** The hooks of a form of the stage `scan`. None allocates. */
typedef struct heed_scan_rule {
    unsigned flags;
    int (*channels)(const heed_form_state *form, int dim); /**< rows of the state; NULL: dim */
    /** Queries [count][dim] to [count][channels]; and the gradient, added to dx. */
    void (*look)(const heed_form_state *form, const float *x, int count, int dim, float *query);
    void (*look_backward)(const heed_form_state *form, const float *x, int count, int dim,
                          const float *dquery, float *dx);
    void (*write)(const heed_form_state *form, heed_scan_rows *rows);
    void (*write_backward)(const heed_form_state *form, heed_scan_rows *rows);
    const heed_scan_loops *loops; /**< its own recurrence; NULL: the one above */
    int carried; /**< numbers that `write` carries from run to run beside the state, as a running maximum */
} heed_scan_rule;

/** Sizes and wishes. Zero it first. */
typedef struct heed_scan_problem {
    int64_t batch, heads, kv_heads; /**< kv_heads 0: heads; query heads of a kv head read the same state */
    int64_t tokens;                 /**< most of one execution */
    int64_t dim, value_dim;         /**< value_dim 0: dim */
    int64_t layer, layers;          /**< for forms whose decay depends on the layer; layers 0: 1 */
    int threads;                    /**< 0: one a core */
    heed_isa isa;
    bool backward; /**< heed_scan_backward will be called */
    const heed_form *const *forms;
} heed_scan_problem;

typedef struct heed_scan_plan heed_scan_plan;

/** What one execution reads and writes: f32, any strides; N tokens, at most problem.tokens. Tensors that the
 * form does not read are left out (data NULL). */
typedef struct heed_scan_tensors {
    heed_tensor q, k, v; /**< [batch, H, N, D], [batch, G, N, D], [batch, G, N, E] */
    heed_tensor decay, gate, beta, erase, rate;
    heed_tensor out; /**< [batch, H, N, E] */
    float *state;    /**< [batch, G, heed_scan_state_floats], read and written; NULL: begins at 0, not kept */
} heed_scan_tensors;

/**
 * Makes a plan of the clause `scan=FORM` that holds for problem.layer. Allocates all that executing needs.
 * @return HEED_INVALID, HEED_UNSUPPORTED (other clauses beside scan), HEED_NO_MEMORY
 */
HEED_API heed_status heed_scan_create(heed_scan_plan **plan, const char *spec,
                                      const heed_scan_problem *problem);
HEED_API void heed_scan_free(heed_scan_plan *plan);

/** What a spec says of a layer. */
typedef struct heed_scan_facts {
    bool scans;     /**< it is a recurrence */
    unsigned flags; /**< heed_scan_reads of its form */
    int64_t slots;  /**< with HEED_SCAN_SLOTS: how many, entries of a row of the gate; else 0 */
} heed_scan_facts;

/** `scan=gla` makes all layers recurrences, `layers 0,2: scan=gla` two of them. @return HEED_INVALID,
 * HEED_UNSUPPORTED for a spec that is wrong */
HEED_API heed_status heed_scan_of_layer(const char *spec, const heed_form *const *forms, int64_t layer,
                                        heed_scan_facts *facts);

/** Floats of the state of one kv head of one batch entry, whatever the number of tokens. */
HEED_API int64_t heed_scan_state_floats(const heed_scan_plan *plan);
/** heed_scan_reads of the plan's form. */
HEED_API unsigned heed_scan_flags(const heed_scan_plan *plan);
HEED_API size_t heed_scan_bytes(const heed_scan_plan *plan);

/** Not by two threads at once with one plan. @return HEED_INVALID for shapes that are not the plan's, and for
 * tensors that are missing or not read. */
HEED_API heed_status heed_scan(heed_scan_plan *plan, const heed_scan_tensors *tensors);

/**
 * Gradients of the execution from a state of 0. @p tensors as in that run, `out` included; state must be
 * NULL.
 * @param dout [batch, H, N, E]
 * @param gradients overwritten, the shapes of the tensors themselves; those with data NULL are not made
 */
HEED_API heed_status heed_scan_backward(heed_scan_plan *plan, const heed_scan_tensors *tensors,
                                        const heed_tensor *dout, const heed_scan_tensors *gradients);

#ifdef __cplusplus
}
#endif
#endif
