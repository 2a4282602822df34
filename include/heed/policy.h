/**
 * @file policy.h
 * What is kept of the past: forms of the stage `cache` that judge keys, share out room, merge and place.
 *
 * The clause `cache` is a chain: `cache=snapkv(share=0.25) > by_head > packed > q8`. A judge opens a policy;
 * the forms behind it, up to the next judge, shape it (how room is shared out, what becomes of dropped keys);
 * a storage type may end the chain. Several judges act one after the other. A policy knows neither models nor
 * kernels: it sees what one layer holds of one sequence, says which keys are worth how much, and does nothing
 * else.
 */
#ifndef HEED_POLICY_H
#define HEED_POLICY_H

#include <heed/form.h>
#include <heed/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a policy wants to see. Everything costs; ask for what is used. */
enum heed_observes {
    HEED_OBSERVES_KEYS = 1,     /**< held->key */
    HEED_OBSERVES_VALUES = 2,   /**< held->value */
    HEED_OBSERVES_TOKENS = 4,   /**< held->token, held->token_kind */
    HEED_OBSERVES_QUERIES = 8,  /**< held->query, of the last `window` queries */
    HEED_OBSERVES_WEIGHTS = 16, /**< held->weight, of the same queries */
    HEED_OBSERVES_SUMS = 32,    /**< seen->sum: what keys received, of every query */
    HEED_OBSERVES_TOP = 64,     /**< seen->top_key: the `top` strongest keys of every query */
    HEED_OBSERVES_BARE = 128,   /**< held->bare */
};

/** Kinds of tokens, as bits of held->token_kind. */
enum heed_token_kind {
    HEED_TOKEN_SPECIAL = 1,     /**< control tokens: beginning of text, marks of a chat */
    HEED_TOKEN_PUNCTUATION = 2, /**< punctuation and line ends only */
};

/** Turns queries as the projection made them into what keys are compared with, had they stood at other
 * positions: rows [count][dim] in and out, which may not be the same memory; pos [count] are places in the
 * text, as query_pos, wherever `packed` has moved keys. */
typedef void (*heed_place_queries)(void *context, int query_head, const float *in, const int32_t *pos,
                                   int64_t count, float *out);

/** What one kv head of one layer holds of one sequence. Arrays have one entry or row a key held, rising in
 * position; those that the policy does not observe are NULL. */
typedef struct heed_held {
    int64_t layer, layers;
    int kv_head, kv_heads;
    int group; /**< query heads that share this kv head */
    int64_t dim, value_dim;
    int64_t read;              /**< tokens that the sequence has read */
    int64_t visible;           /**< of them those that the layer can see: all, or its window's width */
    int64_t count;             /**< keys held */
    const int32_t *pos;        /**< [count] places in the text, counted from 0 */
    const int32_t *token;      /**< [count] */
    const uint8_t *token_kind; /**< [count] */
    const float *key;          /**< [count][dim] as they are compared: after rope, say */
    const float *bare;         /**< [count][dim] as the projection made them: turned back to position 0 */
    const float *value;        /**< [count][value_dim] */
    const float *mass;    /**< [count] how many keys each stands for, 1 unless keys were merged; never NULL */
    const float *state;   /**< [count] rows of this form's state_floats, which `observe` has gathered; 0 for a
                             new key */
    int64_t state_stride; /**< floats from row to row */
    int64_t queries;      /**< last queries that can be shown: at most `window` */
    const int32_t *query_pos; /**< [queries] */
    const float *query;       /**< [group][queries][dim] as the projection made them, before rope */
    const float *compared;    /**< [group][queries][dim] as they are compared, scale included */
    const float *weight;      /**< [group][queries][count] their attention weights over the keys held */
    heed_place_queries place;
    void *place_context;
    const struct heed_held *beside; /**< [besides] what the policy acts on in this layer, this head included:
                                       for rules that look at all heads; counts may differ */
    int besides;
} heed_held;

/** What new queries gave to the keys held, while they were read. */
typedef struct heed_seen {
    int group;
    int64_t queries, count; /**< new queries; keys held, theirs included */
    int64_t first;          /**< place in the text of the first of them */
    const int32_t *pos;     /**< [count] of the keys */
    const float *sum;       /**< [count] weights summed over the queries and the heads of the group */
    int top;
    const int32_t *top_key;  /**< [group][queries][top] indices among the keys held; -1 for none */
    const float *top_weight; /**< [group][queries][top] falling */
} heed_seen;

/** All kv heads of a layer on which the policy acts, for forms that shape scores and share out room. */
typedef struct heed_shares {
    const heed_held *held; /**< [kv_heads] */
    int kv_heads;
    float *const *score;           /**< [kv_heads][count] what the judge said; regroup may change it */
    const int64_t *first, *recent; /**< [kv_heads] keys at both ends that stay in any case */
    int64_t *budget;               /**< [kv_heads] keys to keep, ends included; share_out may change it */
} heed_shares;

/** Keys of one head after the choice: kept ones may take in dropped ones. */
typedef struct heed_folding {
    const heed_held *held;
    const uint8_t *keep; /**< [count] 1 where the key stays */
    const float *score;  /**< [count] */
    float *key, *value;  /**< [count][dim], [count][value_dim]: rows of kept keys may be changed */
    float *mass;         /**< [count] of kept keys: how many keys each stands for from now on */
    float *work;         /**< [4 count + dim + value_dim] and work_floats */
} heed_folding;

/** A prompt that a layer has attended to, for forms that let only some of its tokens go on to later layers.
 */
typedef struct heed_prompt {
    int64_t before, tokens; /**< tokens of the sequence in front of it; its own */
    /** [tokens] weights that its last token gave each of its tokens at this layer: mean over all heads */
    const float *last;
    /** [tokens] the same of all tokens of the prompt that see it, itself counted: mean over them and the
     * heads */
    const float *mean;
} heed_prompt;

/**
 * The hooks of a cache form; each fills those that it needs. A judge fills `judge` or `choose`. None
 * allocates. Where a hook has `work`, it has 4 floats a key held (regroup, share_out: of all heads on which
 * the policy acts) and those that `work_floats` asks for.
 */
typedef struct heed_policy {
    unsigned observes;
    int (*window)(const heed_form_state *form); /**< queries in held->query and held->weight */
    int (*top)(const heed_form_state *form);
    /** For the largest numbers of keys, queries and heads that may come. */
    int64_t (*work_floats)(const heed_form_state *form, const heed_held *largest);
    int effort; /**< what judging costs beside what it observes, in queries that meet all keys: what costs
                   more acts more rarely while decoding, see HEED_MANNER_EVERY */
    int state_floats; /**< floats that are kept beside each key and go where it goes */
    /** Of a policy that wants a prompt to be read once more, behind itself and by nobody else seen: how many
     * of its tokens at a time. It acts at the end of a prompt and not while decoding; the first float of a
     * key's state is 0 until a text that holds it was repeated, and above 0 then: the largest weight that any
     * query of the repetition, of all heads that share the key, gave it. On layers that see a window it is
     * inf. */
    int (*repeats)(const heed_form_state *form);
    /** state: [seen->count] rows of state_floats, `stride` floats from row to row. */
    void (*observe)(const heed_form_state *form, const heed_seen *seen, float *state, int64_t stride);

    /** Judge: what each key is worth; higher is kept first, of equal ones the later. +inf stays even beyond
     * the budget, -inf goes. Not asked where the budget holds all. */
    void (*judge)(const heed_form_state *form, const heed_held *held, float *score, float *work);
    /** Judge: keys at both ends that stay whatever their score; where a budget has less room, the first ones
     * and then the newest fill it. NULL: none. */
    void (*ends)(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent);
    /** Judge without a budget: says itself what stays. `keep` comes all 1. */
    void (*choose)(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work);

    /** Shapes scores after the judge: chunks that go together, smoothing. */
    void (*regroup)(const heed_form_state *form, const heed_shares *shares, float *work);
    /** Shares out room by layer: the budget of this layer's heads, at most `visible`, so that the mean over
     * the layers is `budget`. */
    int64_t (*layer_budget)(const heed_form_state *form, int64_t layer, int64_t layers, int64_t budget,
                            int64_t visible);
    /** Shares out room among the kv heads of one layer. */
    void (*share_out)(const heed_form_state *form, const heed_shares *shares, float *work);
    bool bounds; /**< share_out finds a budget by itself, so that the judge needs none */
    /** What becomes of the dropped. */
    void (*merge)(const heed_form_state *form, const heed_folding *folding);

    /** Which tokens of a prompt the layers after this one compute and keep, at the positions that they have:
     * `keep` [tokens] comes all 1; the last token goes on in any case. work [2 tokens]. Such a form stands
     * outside the chain of judges. */
    void (*go_on)(const heed_form_state *form, const heed_prompt *prompt, uint8_t *keep, float *work);

    /** A form that says how the chain works: HEED_MANNER_..., read by who applies it. */
    int manner;
} heed_policy;

/** Manners of applying a chain; the form's first argument is the number where there is one. */
enum heed_manner {
    HEED_MANNER_NONE = 0,
    HEED_MANNER_PACKED,  /**< `packed`: keys held move to positions 0, 1, 2, ...; else they keep theirs */
    HEED_MANNER_EVERY,   /**< `every(n)`: the policy acts when n keys more than its budget are held; without
                            it n = 20 times its effort, at least 64 and at most a quarter of the budget */
    HEED_MANNER_CHUNKED, /**< `chunked(n)`: it acts during a long prompt too, every n tokens; else at its end
                          */
    HEED_MANNER_PREFILL, /**< `prompt_only`: it acts at the end of a prompt and never while decoding */
};

/**
 * Arguments that every judge with a budget begins with, so that args 0 and 1 mean the same everywhere:
 * budget=N keeps N keys a kv head; share=x keeps x times the tokens read (on layers that see a window: x
 * times what the window holds); exactly one of the two is given, keeping all otherwise.
 */
#define HEED_BUDGET_ARGS                                                                                     \
    {.name = "budget",                                                                                       \
     .kind = HEED_ARG_INT,                                                                                   \
     .value = NAN,                                                                                           \
     .least = 1,                                                                                             \
     .most = INFINITY,                                                                                       \
     .computed = "all",                                                                                      \
     .summary = "keys kept a kv head"},                                                                      \
    {                                                                                                        \
        .name = "share", .kind = HEED_ARG_FLOAT, .value = NAN, .least = 0, .most = 1, .above = true,         \
        .computed = "all", .summary = "or their share of the tokens read"                                    \
    }

/**
 * What the cache clause of a spec keeps of one layer: for trying policies out without a model.
 *
 * @param spec as "cache=snapkv(share=0.25) > by_head"; what holds for layer held->layer and each kv head's
 * first query head
 * @param forms a user's own forms, ended by NULL, or NULL
 * @param held [kv_heads]: the arrays that the policy observes, and state (rows of the state_floats of all
 * forms, in the order of the chain, state_stride apart) where it has any; beside is not read
 * @param keep [kv_heads][count] out: 1 where the key stays
 * @return HEED_INVALID for a wrong spec, a chain that makes no sense, or an array that the policy observes
 * and held lacks; HEED_NO_MEMORY. Rows that merge forms would change are not handed out.
 */
HEED_API heed_status heed_policy_try(const char *spec, const heed_form *const *forms, const heed_held *held,
                                     int kv_heads, uint8_t *const *keep);

/** A full page of keys and values of one kv head, as it stands in the text. */
typedef struct heed_page_state {
    int64_t layer, layers;
    int64_t first, last; /**< places in the text of its first and its last key */
    int64_t read;        /**< tokens that the sequence has read */
    int64_t behind;      /**< keys held behind it */
    bool goes_on;        /**< more of the prompt that is being read will follow */
    int kv_head, kv_heads, group;
    int64_t dim, value_dim, count; /**< keys of a page */
    /* Of storage that packs pages: */
    const float *key, *value; /**< [count][dim], [count][value_dim] as they are stored now */
    int64_t index, held;      /**< of its first key among those that the kv head holds */
    int64_t queries;          /**< last queries that are shown: at most `window` */
    const float *query;       /**< [group][queries][dim] as they are compared, scale included */
    const float *weight;      /**< [group][queries][held] their weights; NULL unless it `weighs` */
    void *work;               /**< 8 bytes for each number of the page's keys or values */
} heed_page_state;

/** Storage that changes as keys age: new keys are stored as grade 0; whenever a page was filled, every full
 * page is asked for again. */
typedef struct heed_storage {
    /** Types of grades 0, 1, ..., of 1 + HEED_MOST_GRADES at most; returns how many there are. */
    int (*grades)(const heed_form_state *form, heed_grade_types *grade);
    /** The grade that a full page shall have. It is made from the page as it is stored: what a coarser grade
     * lost stays lost. */
    int (*grade)(const heed_form_state *form, const heed_page_state *page);
    /** Where grades have HEED_PACKED keys or values: bytes of a page of `count` of them, ... */
    size_t (*page_bytes)(const heed_form_state *form, int grade, bool values, int64_t count, int64_t dim);
    /** ... and a page that becomes one of that grade, written to `to`: it is packed once and stays so. */
    void (*pack)(const heed_form_state *form, const heed_page_state *page, int grade, bool values, void *to);
    int (*window)(const heed_form_state *form); /**< queries in page->query and page->weight; NULL: none */
    bool weighs;
} heed_storage;

#ifdef __cplusplus
}
#endif
#endif
