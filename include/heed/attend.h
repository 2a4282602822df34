/**
 * @file attend.h
 * Attention by plan: a problem and a spec make a plan, which is executed as often as one likes.
 */
#ifndef HEED_ATTEND_H
#define HEED_ATTEND_H

#include <heed/form.h>
#include <heed/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Instruction sets the kernels are built for. */
typedef enum heed_isa {
    HEED_ISA_AUTO = 0, /**< the best this processor has, or what HEED_ISA= in the environment says */
    HEED_ISA_PORTABLE,
    HEED_ISA_AVX2,
    HEED_ISA_AVX512,
    HEED_ISA_NEON,
} heed_isa;

HEED_API const char *heed_isa_name(heed_isa isa);
/** False when the name is unknown. */
HEED_API bool heed_isa_from_name(const char *name, heed_isa *isa);
/** Whether this build and this processor can run it. */
HEED_API bool heed_isa_available(heed_isa isa);

/** Kernel classes. */
typedef enum heed_kernel {
    HEED_KERNEL_AUTO = 0,
    HEED_KERNEL_FLASH,
    HEED_KERNEL_ROWS,
    HEED_KERNEL_SPARSE,
    HEED_KERNEL_DECODE,
    HEED_KERNEL_GATHER
} heed_kernel;

HEED_API const char *heed_kernel_name(heed_kernel kernel);

/** Inputs beside q, k, v that an execution will bring, and outputs it will ask for; the plan checks that they
 * suffice. */
enum heed_with {
    HEED_WITH_POSITIONS = 1, /**< q_pos and k_pos (either may be NULL then: the default positions) */
    HEED_WITH_SEQ = 2,       /**< seq, and q_seq if given */
    HEED_WITH_SEGMENTS = 4,  /**< q_segment and k_segment */
    HEED_WITH_MASK = 8,
    HEED_WITH_PAGES = 16,           /**< k and v are pools of pages with a page table */
    HEED_WITH_BACKWARD = 32,        /**< heed_attend_backward will be called */
    HEED_WITH_ENTROPY = 64,         /**< capture of row entropies */
    HEED_WITH_KEY_SUMS = 128,       /**< capture of what each key receives */
    HEED_WITH_TOP = 256,            /**< capture of the strongest links of each row */
    HEED_WITH_WEIGHTS = 512,        /**< capture of weights in tiles */
    HEED_WITH_PREPARED_KEYS = 1024, /**< k went through heed_plan_prepare_keys before it was stored */
    HEED_WITH_SCRATCH = 2048,       /**< every execution brings its scratch, so the plan keeps none */
    /** Each kv head holds keys of its own: seq is [batch, G], k_pos [batch, G, M] (with POSITIONS) and, with
     * PAGES, page_table [batch, G, pages] and the pools [pages, 1, page, D or E]; q_seq stays [batch].
     * Default numbers and positions of queries need the same seq for all kv heads of a batch entry: else
     * q_seq and q_pos are needed. Not with BACKWARD or SEGMENTS; with heads that mix not with POSITIONS, so
     * that all hold the same keys. */
    HEED_WITH_KEYS_BY_HEAD = 4096,
    HEED_WITH_START = 8192, /**< start: where key 0 and with it the default positions begin */
    /** mass: log(mass) is added to a key's logits, after soft caps, as if it stood there so often. `select`
     * chooses among keys without their masses. Not with BACKWARD; softmax, softmax1 and sink only. */
    HEED_WITH_MASS = 16384,
    HEED_WITH_SUMMARIES = 32768, /**< what selectors make of keys comes with the keys: heed_plan_summarise */
    /** Quantised keys and values may be multiplied in whole numbers of 16 bits where that is faster: within
     * 1e-4 of products in fp32, which are made otherwise. */
    HEED_WITH_WHOLE_NUMBERS = 65536,
    HEED_WITH_MEMORY =
        131072, /**< memory: what selectors carry from one execution to the next; see recall.h */
};

/** The pools of a grade, as k, v and paged summaries. */
typedef struct heed_grade {
    heed_tensor k, v, summaries;
} heed_grade;

/** Sizes, types and wishes. Zero it first; zero threads means all cores, zero value_dim means dim, zero
 * kv_heads means heads. */
typedef struct heed_problem {
    int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
    heed_type q_type, k_type, v_type;
    int threads;
    heed_isa isa;
    heed_kernel kernel; /**< AUTO, or one to force; refused when that one cannot run the spec */
    unsigned with;      /**< heed_with flags */
    int64_t page;       /**< with PAGES: keys a page, a power of two */
    int grades;         /**< with PAGES: grades beside the first, */
    heed_grade_types grade[HEED_MOST_GRADES]; /**< and their types */
    int64_t layer;                            /**< which layer this is, for `layers` prefixes in the spec */
    int top;                                  /**< with TOP: links a row */
    const heed_form *const
        *forms; /**< a user's own forms, ended by NULL; must outlive the plan; may be NULL */
} heed_problem;

typedef struct heed_plan heed_plan;

/** One tile of final weights, as streamed to a weights callback. Rows are queries query0.., columns keys
 * key0... */
typedef struct heed_weights_tile {
    int64_t batch, head, query0, key0;
    int rows, cols;
    const float *weight; /**< [rows][stride]; pairs in no tile have weight 0 */
    int64_t stride;
} heed_weights_tile;

/** Called from worker threads, never twice at once for the same (batch, head, query). */
typedef void (*heed_weights_sink)(void *context, const heed_weights_tile *tile);

/** What is captured on the way. NULL pointers are not captured. Needs the matching flag in problem.with. */
typedef struct heed_capture {
    float *entropy;  /**< [batch, heads, queries] entropy in nats of the row's weights, as -sum w log w */
    float *key_sums; /**< [batch, heads, keys] sum of weights over the queries; of keys in pages only those
                        that there are */
    float
        *top_weight;  /**< [batch, heads, queries, top] strongest weights, falling; 0 where there are fewer */
    int32_t *top_key; /**< [batch, heads, queries, top] their keys; -1 where there are fewer */
    heed_weights_sink sink;
    void *sink_context;
    const uint8_t *sink_heads; /**< [heads] 1 for heads to stream; NULL for all */
    double *pairs; /**< [2]: pairs whose values were read, and pairs open under `where`: added to; always
                      available */
} heed_capture;

/** Keys and values that will be read. */
typedef struct heed_keys_read {
    int64_t batch, kv_head, first, count; /**< keys first... */
    enum {
        HEED_READS_NOW,
        HEED_READS_NEXT,
        HEED_READS_LATER
    } when; /**< later: all that an execution chose */
} heed_keys_read;

/** Everything else an execution may bring. Zero it first. */
typedef struct heed_extra {
    heed_tensor q_pos, k_pos;         /**< i32 [N], [M] or [batch, N], [batch, M] */
    heed_tensor seq, q_seq;           /**< i32 [batch] */
    heed_tensor q_segment, k_segment; /**< i32 [N], [M] or with batch */
    heed_tensor start;                /**< i32 [batch]: added to default positions of queries and keys */
    heed_tensor mass;                 /**< f32 [batch, M], or [batch, G, M] with KEYS_BY_HEAD; above 0 */
    /** With SUMMARIES: f32 [batch, G, floats], heed_plan_summary_floats each, kept up by heed_plan_summarise.
     * With pages it may be [pages, G, floats a page]. */
    heed_tensor summaries;
    /** With MEMORY: [batch] the memory of each sequence, brought up to date; NULL: all keys are attended to
     * and nothing is remembered. */
    struct heed_memory *const *memory;
    heed_tensor mask;        /**< u8 [N, M], [batch, N, M] or [batch or 1, H or 1, N, M] */
    heed_tensor page_table;  /**< i32 [batch, pages]: page number of each run of `page` keys */
    const heed_grade *grade; /**< [problem.grades] pools of grades 1, 2, ... */
    const heed_tensor
        *params;      /**< in the order of heed_plan_param; data NULL or the array NULL: initial values */
    heed_tensor lse;  /**< f32 [batch, heads, queries], written if data is set */
    float *row_state; /**< f32 [batch, heads, queries, 2], written forward, read backward; may be NULL */
    heed_capture capture;
    void *scratch; /**< heed_plan_scratch bytes, 64-byte aligned; NULL: the plan's own, one user at a time */
    /** With PAGES: called from worker threads before keys and values are read, for caches that lie in a file.
     * What selectors look at (summaries) is not told. May be NULL. */
    void (*reads)(void *context, const heed_keys_read *keys);
    void *reads_context;
} heed_extra;

/** Gradients to compute; dense or strided f32 tensors, overwritten. Those with data NULL are not computed. */
typedef struct heed_gradients {
    heed_tensor q, k, v; /**< the inputs of the forward run */
    heed_tensor dout;    /**< f32 [batch, heads, queries, value_dim] */
    heed_tensor
        out; /**< the forward output, f32; with `row_state` it spares a second forward run; may be absent */
    heed_tensor dq, dk, dv;
    heed_tensor *dparams;    /**< in the order of heed_plan_param; may be NULL */
    const heed_extra *extra; /**< as in the forward run */
} heed_gradients;

/** A learnable tensor of a plan. */
typedef struct heed_plan_param_info {
    char name[64]; /**< "position.t5.b" */
    int rank;
    int64_t shape[4]; /**< for shapes with a choice ("B|1") the larger */
    bool free[4];     /**< this size may also be 1 */
    bool required;
} heed_plan_param_info;

/**
 * Makes a plan. Checks everything and allocates everything that executing needs.
 * @param plan     receives the plan; the caller frees it with heed_plan_free
 * @param spec     text of the spec; "" is scaled dot-product attention over all keys
 * @param problem  sizes, types, wishes; copied
 * @return HEED_INVALID (spec or sizes wrong), HEED_UNSUPPORTED (cannot be done exactly), HEED_NO_MEMORY
 */
HEED_API heed_status heed_plan_create(heed_plan **plan, const char *spec, const heed_problem *problem);
HEED_API void heed_plan_free(heed_plan *plan);

/**
 * out = attention of q over k, v. q [batch, H, N, D], k [batch, G, M, D], v [batch, G, M, E], out f32 [batch,
 * H, N, E]; with PAGES k and v are [pages, G, page, D or E]. Allocates nothing. @return HEED_INVALID for
 * shapes or types that are not the plan's, for parameters out of range, or for positions of 2^30 or more in
 * size.
 */
HEED_API heed_status heed_attend(const heed_plan *plan, const heed_tensor *q, const heed_tensor *k,
                                 const heed_tensor *v, const heed_tensor *out, const heed_extra *extra);

/** Keys of one kv head, as the projection made them, to be kept in a cache. */
typedef struct heed_new_keys {
    int64_t kv_head, count;
    const int32_t *pos; /**< [count] their positions, as k_pos will be or would be by default */
    float *k;           /**< [count] rows of dim entries; overwritten with anything */
    int64_t k_stride;   /**< in entries */
    float *out;         /**< [count] prepared rows of dim entries, never the memory of k */
    int64_t out_stride;
} heed_new_keys;

/**
 * Does to keys what the spec does to each before it is compared (rope turns it, cosine normalises it), once,
 * so that a cache holds them ready and nothing is done over again for every new query. Needs
 * HEED_WITH_PREPARED_KEYS, with which the executions of the plan take k as this made it. Allocates nothing.
 * @return HEED_INVALID
 */
HEED_API heed_status heed_plan_prepare_keys(const heed_plan *plan, const heed_new_keys *keys);

/** Turns queries of one head, as the projection made them, into what prepared keys are compared with: their
 * product with a prepared key is the score before biases, scale included. k and out of @p rows hold queries
 * then, kv_head is the query head. @return HEED_UNSUPPORTED where the score is no such product, or is made
 * with parameters */
HEED_API heed_status heed_plan_prepare_queries(const heed_plan *plan, const heed_new_keys *rows);

/** Moves prepared keys: pos holds by how many places each moves. @return HEED_UNSUPPORTED where the spec has
 * no such motion (keys that depend on positions in another way). */
HEED_API heed_status heed_plan_move_keys(const heed_plan *plan, const heed_new_keys *keys);

/** Floats of the summaries of `keys` keys of one kv head, all selectors together; 0 where none has any. */
HEED_API int64_t heed_plan_summary_floats(const heed_plan *plan, int64_t keys);
/** Takes prepared keys first... into the summary of one kv head, a summary of `capacity` keys (problem.keys,
 * or the keys of a page, first then counted from its start); keys come in order, and again from a block's
 * start after the cache was cut there. params: as in heed_extra, of selectors that summarise by tensors.
 * @return HEED_INVALID */
HEED_API heed_status heed_plan_summarise(const heed_plan *plan, const heed_tensor *params, int kv_head,
                                         int64_t capacity, int64_t first, const float *keys, int64_t stride,
                                         int64_t count, float *summary);

/** Sizes of a memory of up to `keys` keys, as selectors with HEED_WITH_MEMORY take it; 0 and 0 without any.
 */
HEED_API void heed_plan_memory(const heed_plan *plan, int64_t keys, int64_t *numbers, int64_t *reals);

/** Gradients by recomputing tiles. Needs HEED_WITH_BACKWARD. Same bits for any number of threads. */
HEED_API heed_status heed_attend_backward(const heed_plan *plan, const heed_gradients *gradients);

/** Number of learnable tensors. */
HEED_API int heed_plan_params(const heed_plan *plan);
HEED_API heed_status heed_plan_param(const heed_plan *plan, int i, heed_plan_param_info *info);
/** Initial values, dense f32. HEED_INVALID for a required parameter, which has none. */
HEED_API heed_status heed_plan_param_initial(const heed_plan *plan, int i, float *values);

/** Bytes of scratch that one execution needs. */
HEED_API size_t heed_plan_scratch(const heed_plan *plan);

/** What the plan will do. */
typedef struct heed_plan_info {
    heed_kernel kernel;
    heed_isa isa;
    int threads;
    int query_block, key_block;
    double flops;      /**< of the products over open pairs, forward: 2 (D + E) a pair */
    double bytes;      /**< of q, k, v and out, each once */
    double open_pairs; /**< pairs open under `where`, all heads and batch entries, for default positions; an
                          upper bound by blocks where `where` depends on data */
    double open_share; /**< of all pairs */
    size_t scratch_bytes, scratch_per_thread;
    bool fast_products; /**< 16-bit or integer products are used */
} heed_plan_info;

HEED_API void heed_plan_get_info(const heed_plan *plan, heed_plan_info *info);

/** Lines of text: kernel and why, tiles, flops, bytes, scratch, parameters, what is slow. Writes at most @p
 * size bytes with the final 0; returns the length needed. */
HEED_API size_t heed_plan_describe(const heed_plan *plan, char *text, size_t size);

/** Writes the canonical spelling of a spec; returns HEED_INVALID with the column and word when it is wrong.
 * `text` may be NULL. */
HEED_API heed_status heed_spec_canonical(const char *spec, const heed_form *const *forms, char *text,
                                         size_t size);

/** Calls @p visit for each built-in form, by stage. */
HEED_API void heed_forms_visit(void (*visit)(void *context, const heed_form *form), void *context);

/** A published combination: a name that stands for a whole spec. */
typedef struct heed_combination {
    const char *name;
    const char *spec; /**< with {argument} where an argument goes */
    const heed_arg *args;
    const char *summary, *source, *row;
} heed_combination;

HEED_API void heed_combinations_visit(void (*visit)(void *context, const heed_combination *combination),
                                      void *context);

#ifdef __cplusplus
}
#endif
#endif
