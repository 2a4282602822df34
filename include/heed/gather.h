/**
 * @file gather.h
 * Selectors by lists: a form says which queries meet which keys, as lists of indices in any order, and what
 * meets is gathered, scored and merged. It says so by calling `meet`, as often as it likes; weights are
 * softmaxes over all that a query met, merged by their log-sum-exp, so no row of scores is ever whole.
 *
 * The backward pass asks the form again, so the lists must follow from what it is shown alone.
 */
#ifndef HEED_GATHER_H
#define HEED_GATHER_H

#include <heed/form.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Queries and keys of one query head that meet. A query meets a key once at most over all meetings, or it
 *  counts twice. */
typedef struct heed_meeting {
    const int32_t *query; /**< [queries] indices; NULL: first_query, first_query + 1, ... */
    int64_t queries, first_query;
    const int32_t *query_pos; /**< [queries] where they stand while they meet these keys; NULL: where they do
                                 stand */
    const int32_t *key;       /**< [keys] indices; NULL: first_key, first_key + 1, ... */
    int64_t keys, first_key;
    /** [keys][dim] prepared and [keys][value_dim]: rows that the form made, which are met instead of keys;
     * then `open` is true. They begin at number `made` of all that it made. */
    const float *made_key, *made_value;
    int64_t made;
    const float *log_mass; /**< [keys] added to their logits: log of how many keys each stands for; or NULL */
    /** [queries] or NULL: a query sees the keys number from .. until - 1 of the list, or with `outside` the
     * others. */
    const int32_t *from, *until;
    bool outside;
    bool open; /**< `where` is not asked */
    /** [queries] or NULL. With it this meeting is a softmax by itself, whose output is added in this share.
     */
    const float *share;
} heed_meeting;

/** One query head of one batch entry. */
typedef struct heed_gathering {
    int batch, head, kv_head;
    int64_t queries, keys; /**< that exist */
    int64_t before;        /**< keys that stand before the first query: query i is key before + i */
    int dim, value_dim;
    const int32_t *query_pos, *key_pos;
    const float *query; /**< [queries][query_stride] prepared, with their scale */
    int64_t query_stride;
    double query_scale; /**< that factor, which keys lack */
    void *work;         /**< `gather_bytes`, 64-byte aligned; anything at first */
    /** Of the sequence, of all `before` keys, with HEED_WITH_MEMORY; a head writes its own part only. NULL:
     * all keys came with their queries. */
    struct heed_memory *memory;
    /** Prepared keys first.., values first.. as rows of `stride` floats. */
    void (*load_keys)(const struct heed_gathering *at, int64_t first, int64_t count, float *to,
                      int64_t stride);
    void (*load_values)(const struct heed_gathering *at, int64_t first, int64_t count, float *to,
                        int64_t stride);
    /** The same of any query head, with their scale, and of any kv head. */
    void (*load_queries_of)(const struct heed_gathering *at, int head, int64_t first, int64_t count,
                            float *to, int64_t stride);
    void (*load_keys_of)(const struct heed_gathering *at, int kv_head, int64_t first, int64_t count,
                         float *to, int64_t stride);
    /** Queries, keys first.. prepared as they stand at pos[0 .. count - 1]. */
    void (*place_queries)(const struct heed_gathering *at, int64_t first, int64_t count, const int32_t *pos,
                          float *to, int64_t stride);
    void (*place_keys)(const struct heed_gathering *at, int64_t first, int64_t count, const int32_t *pos,
                       float *to, int64_t stride);
    void (*meet)(const struct heed_gathering *at, const heed_meeting *meeting);
    void *kernel; /**< the kernel's */
} heed_gathering;

/** What came back to rows that a form made, to hand on to what they were made of. */
typedef struct heed_made_gradients {
    const float *key, *value; /**< [made][dim], [made][value_dim] */
    float *query;             /**< [queries][query_stride] gradients of prepared queries, to add to */
    int64_t query_stride;
    float *keys; /**< [keys][key_stride] of prepared keys, to add to */
    int64_t key_stride;
    float *values; /**< [keys][value_stride], to add to */
    int64_t value_stride;
} heed_made_gradients;

typedef struct heed_gather_rule {
    bool apart;  /**< its meetings have shares */
    bool makes;  /**< it makes keys, which forms of position cannot add to, nor masks close */
    bool places; /**< it has queries or keys stand elsewhere */
    /** Whether it gathers at these sizes; else everything that `where` opens is read, as without it. NULL: it
     * does. */
    bool (*serves)(const heed_form_state *form);
    /** Whether a memory of keys that a sequence was cut back to, or read since, still serves; NULL: it does.
     */
    bool (*ready)(const heed_form_state *form, const struct heed_memory *memory, int64_t before);
    size_t (*bytes)(const heed_form_state *form); /**< of work for a head; NULL: none */
    /** Called for every head before `gather` is for any: what heads decide together goes through the memory,
     * which such a form must have. NULL: nothing. */
    void (*survey)(const heed_form_state *form, const heed_gathering *at);
    void (*gather)(const heed_form_state *form, const heed_gathering *at);
    /** Called for a head when its rows are done: log-sum-exps [queries] of what each met. NULL: nothing. */
    void (*settle)(const heed_form_state *form, const heed_gathering *at, const float *lse);
    /** Called once for a sequence, when all heads are done, before memory->keys becomes `keys`. NULL:
     * nothing.
     */
    void (*close)(const heed_form_state *form, struct heed_memory *memory, int64_t keys);
    /** Rows that it makes at most; NULL: none; and the way back through them. */
    int64_t (*made)(const heed_form_state *form);
    void (*made_backward)(const heed_form_state *form, const heed_gathering *at,
                          const heed_made_gradients *gradients);
} heed_gather_rule;

#ifdef __cplusplus
}
#endif
#endif
