/**
 * @file recall.h
 * Selectors whose choice outlives an execution: made at some steps of decoding and read at later ones, or
 * made at one layer and read by the layers after it.
 *
 * What is carried on is a memory: two arrays of one sequence that belong to the caller. A selector with a
 * heed_recall decides, for one new token of each sequence, either to renew - all keys are attended to, and
 * from their weights, or from the keys, it makes a memory - or to recall: from the memory it says which
 * blocks of keys are read. It knows neither models nor sessions.
 */
#ifndef HEED_RECALL_H
#define HEED_RECALL_H

#include <heed/form.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a selector carries on, of one sequence. */
typedef struct heed_memory {
    int64_t keys;    /**< keys that existed when it was made, the newest counted; -1: there is none */
    int32_t *number; /**< heed_recall.numbers of them; anything at first */
    float *real;     /**< heed_recall.reals of them; anything at first */
    /** Gives the last queries of a query head, the new one not among them, prepared and with their scale,
     * oldest first: rows of dim floats, at most heed_recall.shown of them; returns how many. NULL: none. */
    int64_t (*show)(const void *context, int head, float *to);
    const void *show_context;
    int64_t scanned; /**< keys, or what stands for them, that were compared with queries to find others: added
                        to */
} heed_memory;

/** One new query of every head of a layer, of one sequence. */
typedef struct heed_recalled {
    int heads, kv_heads, dim;  /**< entries of a prepared query or key */
    int64_t keys;              /**< that exist, the newest token's counted */
    const float *const *query; /**< [heads] prepared, with their scale */
    heed_memory *memory;
    float *work; /**< [2 keys] scratch, and heed_recall.work floats behind them */
    /** `remember` with HEED_RECALL_WEIGHS: [heads] rows of softmax weights over the keys; 0 where closed */
    float *const *weight;
    /** Gives prepared keys first.. of a kv head as rows of `stride` floats, at most 128 at once
     */
    void (*load)(const void *context, int kv_head, int64_t first, int count, float *to, int64_t stride);
    const void *context;
    /** `recall`: [kv_heads] one byte a block, 0 at first: set to 1 where it is read. Blocks with keys newer
     * than the memory are read without being asked for. */
    uint8_t *const *keep;
} heed_recalled;

enum heed_recall_flags {
    HEED_RECALL_WEIGHS = 1,     /**< `remember` reads weights */
    HEED_RECALL_FOR_LAYERS = 2, /**< what it remembers is for the layers after this one, in the same step */
    /** What it remembers is of keys alone, those before the new one, and is recalled in the same step: no
     * step attends to all keys, unless `renews` still asks for one. */
    HEED_RECALL_AT_ONCE = 8,
    /** Its memory is read and brought up to date by every execution, of prompts too; see gather.h. The other
     * hooks are NULL, and its unit is 1. */
    HEED_RECALL_GATHERS = 16,
    HEED_RECALL_FROM_LAYERS = 4, /**< reads what a layer before this one remembered in the same step */
};

typedef struct heed_recall {
    unsigned flags;
    /** Keys of a block: block b holds the keys b unit .. b unit + unit - 1. */
    int64_t (*unit)(const heed_form_state *form);
    /** Sizes of a memory of a sequence of up to `keys` keys; NULL: none. */
    int64_t (*numbers)(const heed_form_state *form, int64_t keys);
    int64_t (*reals)(const heed_form_state *form, int64_t keys);
    int64_t (*work)(const heed_form_state *form, int64_t keys);
    /** Most queries that `show` gives; NULL: none. */
    int64_t (*shown)(const heed_form_state *form);
    /** Whether this step attends to all keys and remembers anew, where there is a memory; without one it
     * does. NULL: it does not. */
    bool (*renews)(const heed_form_state *form, const heed_recalled *now);
    void (*remember)(const heed_form_state *form, const heed_recalled *now);
    void (*recall)(const heed_form_state *form, const heed_recalled *now);
} heed_recall;

#ifdef __cplusplus
}
#endif
#endif
