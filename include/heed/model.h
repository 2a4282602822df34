/**
 * @file model.h
 * Pretrained models: open one, feed it tokens, read what it makes of them.
 */
#ifndef HEED_MODEL_H
#define HEED_MODEL_H

#include <heed/attend.h>
#include <heed/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Weights and tokeniser of a model. Immutable once open; any number of sessions may use it at once. */
typedef struct heed_model heed_model;
/** A place where sequences are read: caches, plans and work memory. One thread at a time. */
typedef struct heed_session heed_session;

/** Wishes when opening. Zero it first. */
typedef struct heed_model_options {
    bool exact;  /**< fp32 activations and weights as the file defines them, instead of products of whole
                    numbers */
    int threads; /**< for packing weights; 0: one a core */
    heed_isa isa;
} heed_model_options;

/** Opens a GGUF file (or the first of its parts), a safetensors file or a folder. Refuses, by name, an
 * architecture, tensor or piece of metadata that changes the result and is not understood. */
HEED_API heed_status heed_model_open(heed_model **model, const char *path, const heed_model_options *options);
HEED_API void heed_model_close(heed_model *model);

/** What a model is. Texts are owned by the model. */
typedef struct heed_model_info {
    const char *architecture, *name;
    int64_t layers, width, heads, kv_heads, head_dim, feed_forward, vocabulary;
    int64_t context;   /**< tokens it was made for */
    double parameters; /**< numbers in its weights */
    size_t file_bytes, packed_bytes;
    double pack_seconds; /**< what repacking the weights took */
    bool generates;      /**< gives next-token logits; else embeddings only */
    bool causal;
    const char *kernels;  /**< which products run, for reports */
    const char *pooling;  /**< how hidden states become one vector: "mean", "cls" or "last"; NULL when its
                             files  ask for something else */
    int64_t embed_tokens; /**< tokens of a text that its files want read; `context` when they say nothing */
} heed_model_info;
HEED_API void heed_model_get_info(const heed_model *model, heed_model_info *info);
HEED_API const heed_tokenizer *heed_model_tokenizer(const heed_model *model);

/** Sentences worth a line to the user: contradictions in the files and the choice made. */
HEED_API int heed_model_notes(const heed_model *model);
HEED_API const char *heed_model_note(const heed_model *model, int i);

/** Whether a layer has weights of attention; not where it is a recurrence or a layer by a form. */
HEED_API bool heed_model_attends(const heed_model *model, int64_t layer);
/** The model's own attention at a layer, as a spec. */
HEED_API heed_status heed_model_attention(const heed_model *model, int64_t layer, char *text, size_t size);

/** Learnt tensors of attention that a model file does not have, by layer and name: "blk.3.select.loki.basis".
 */
typedef struct heed_params heed_params;
/** Writes a safetensors file, aside and renamed. @return HEED_IO, HEED_NO_MEMORY */
HEED_API heed_status heed_params_save(const heed_params *params, const char *path);
HEED_API void heed_params_free(heed_params *params);

/** Wishes for a session. Zero it first. */
typedef struct heed_session_options {
    int64_t context;   /**< tokens a sequence may hold; 0: what the model was made for. Where no layer needs
                          more than that of any longer text, it may be read on without end, at positions as they
                          come. */
    int64_t sequences; /**< sequences side by side; 0: one */
    int64_t chunk;     /**< most tokens in one piece of work; 0: 512 */
    const char
        *attention;  /**< clauses that replace those of the model's own spec, by layer and head; NULL: none */
    heed_type cache; /**< of keys and values: f32, f16, bf16, q8, q4; what `attention` says goes first */
    bool cache_given; /**< false: f16 */
    int threads;      /**< 0: one a core */
    unsigned with;    /**< heed_with capture flags that heed_feed may be asked for */
    int top;
    const heed_form *const *forms; /**< a user's own forms for `attention`, ended by NULL; may be NULL */
    /** Folder on a disk for a file, without a name, of the pages of layers that keep all keys; NULL: they
     * stay in memory. What is read is the same, bit for bit. */
    const char *offload;
    size_t resident_bytes; /**< with offload: most bytes of pages in memory, of all layers; summaries,
                              positions and states come on top */
    const char *params;    /**< a safetensors file with learnt tensors of `attention`, f32, by layer and name:
                                "blk.3.select.loki.basis"; NULL: none */
} heed_session_options;

HEED_API heed_status heed_session_create(heed_session **session, const heed_model *model,
                                         const heed_session_options *options);
HEED_API void heed_session_free(heed_session *session);

/** How tensors of forms are found on a text. Zero it first. */
typedef struct heed_calibration_options {
    const char *attention; /**< clauses with the forms, as in heed_session_options */
    int64_t window;        /**< tokens that are read at a time, where a form does not say; 0: 2048 */
    int threads;
    const heed_form *const *forms;
    void (*progress)(void *context, double done); /**< 0 to 1, after each layer of each window; or NULL */
    /** What was found of a layer, where a form has a number for it; or NULL. */
    void (*found)(void *context, int64_t layer, const heed_form *form, double value);
    void *context;
} heed_calibration_options;

/**
 * Lets the model read a text in windows, each as a text of its own, and the forms of `attention` make their
 * tensors of what they see. Forms whose calibration is to see the model's own attention come first; then
 * those that are to see what earlier layers' cuts leave, with the former in force. Tokens that fill no window
 * are not read, unless there is none. Deterministic.
 * @param params receives the tensors; the caller frees them with heed_params_free
 * @return HEED_INVALID; HEED_UNSUPPORTED where no form has a calibration, or scores are no products
 */
HEED_API heed_status heed_calibrate(heed_params **params, const heed_model *model,
                                    const heed_calibration_options *options, const int32_t *tokens,
                                    int64_t count);

/** What a session holds and which kernels it runs. */
typedef struct heed_session_info {
    int64_t context, sequences, chunk;
    int64_t
        limit; /**< tokens that a sequence may read: `context`, unless every layer forgets what lies behind
                  it (windows, policies with a budget in tokens): then the positions that the model has */
    int64_t distance; /**< the farthest that a key lies behind its query, in positions: within a window, or as
                         `packed` moves keys; else `limit` */
    int threads;
    double cache_token_bytes; /**< a token of one sequence, all layers */
    size_t work_bytes;
    int64_t state_layers; /**< recurrences: a state goes along, which does not grow and cannot go back */
    int64_t again_layers; /**< layers that are computed again for each call, over the whole context, from
                             inputs that are kept */
    bool whole_prompts;   /**< a prompt must come in one call, and has logits of its last token only */
} heed_session_info;
HEED_API void heed_session_get_info(const heed_session *session, heed_session_info *info);

/** Which kernel a layer's attention runs on when @p queries tokens are fed, and why. As heed_plan_describe.
 */
HEED_API size_t heed_session_describe(const heed_session *session, int64_t layer, int64_t queries, char *text,
                                      size_t size);

/** Names of learnt tensors that the session's attention has, which neither the model nor `params` has for all
 * layers, and which stand at their initial values there: "position.t5.b, heads.talking.p (layers 2, 3)". ""
 * where there are none. As snprintf. */
HEED_API size_t heed_session_untrained(const heed_session *session, char *text, size_t size);

/** Tokens that sequence @p sequence has read. */
HEED_API int64_t heed_session_length(const heed_session *session, int64_t sequence);
/** Tokens that it can take in before a policy acts: a prompt, in one call or in parts, must not be longer
 * where policies act at its end only. */
HEED_API int64_t heed_session_room(const heed_session *session, int64_t sequence);
/** The tokens that it has read; valid until the sequence changes. */
HEED_API const int32_t *heed_session_tokens(const heed_session *session, int64_t sequence);
/** Forgets all but the first @p length tokens of a sequence. @return HEED_INVALID, with nothing changed, when
 * keys that are needed there are gone (behind a window, or dropped by a policy) or were quantised since; the
 * message says which, and how far back it goes. */
HEED_API heed_status heed_session_cut(heed_session *session, int64_t sequence, int64_t length);
/** Makes @p to hold what @p from holds of its first @p length tokens, without copying: pages are shared until
 * one of the two changes them. What @p to held is forgotten. Fails as heed_session_cut does. */
HEED_API heed_status heed_session_share(heed_session *session, int64_t from, int64_t to, int64_t length);

/** Takes the keys of tokens @p first to @p first + @p count - 1 of a sequence out of sight: what is read from
 * now on does not see them, and all others keep their positions. Those tokens stay among the ones that it has
 * read. Nothing brings the keys back: share the sequence before. @return HEED_INVALID for tokens that it has
 * not read; HEED_UNSUPPORTED where keys have no places of their own: give the session a policy, as
 * `cache=fifo(share=1)`, which drops nothing */
HEED_API heed_status heed_session_hide(heed_session *session, int64_t sequence, int64_t first, int64_t count);

/** Puts what sequence @p from holds behind what @p to holds, as a passage that was read by itself: its keys
 * move to their places, values stay, and pages are shared where nothing has to move. Its tokens have not seen
 * what stands before it; what is read afterwards sees all (windows as far as they reach). Keys in quantised
 * caches are rounded once more. @return HEED_UNSUPPORTED with cache policies, with positions whose keys
 * cannot be moved and with learnt ones; HEED_INVALID where the context is too short */
HEED_API heed_status heed_session_splice(heed_session *session, int64_t from, int64_t to);

/** Passages that were read by themselves, kept for prompts to come: in sequences of a session, found by their
 * tokens, the one used longest ago going first where room ends. */
typedef struct heed_passages heed_passages;

/** Sequences @p first to @p first + @p count - 1 of @p session, which nobody else uses, hold up to @p
 * most_bytes of pages. With @p folder passages are also kept there as saved sessions and found again by other
 * processes; NULL: they are not. The session must outlive it. */
HEED_API heed_status heed_passages_create(heed_passages **passages, heed_session *session, int64_t first,
                                          int64_t count, size_t most_bytes, const char *folder);
HEED_API void heed_passages_free(heed_passages *passages);

/** Where a passage came from. */
typedef enum heed_passage_source {
    HEED_PASSAGE_READ = 0, /**< it was read by the model */
    HEED_PASSAGE_KEPT,     /**< held since it was last used */
    HEED_PASSAGE_FILE,     /**< from the folder */
} heed_passage_source;

/** Puts a passage behind what sequence @p to holds, see heed_session_splice; reads it if it is not kept. */
HEED_API heed_status heed_passages_add(heed_passages *passages, int64_t to, const int32_t *tokens,
                                       int64_t count, heed_passage_source *source);

/** What is kept and what became of requests. */
typedef struct heed_passages_usage {
    int64_t kept, dropped; /**< passages held; that had to go for others */
    size_t bytes;          /**< of pages of those held; shared ones count */
    int64_t source[3];     /**< requests by heed_passage_source */
} heed_passages_usage;
HEED_API void heed_passages_get_usage(const heed_passages *passages, heed_passages_usage *usage);

/** Writes what a sequence holds: tokens, keys, values, positions, policies' state. Aside and renamed, with a
 * version, checksums and the model's fingerprint. */
HEED_API heed_status heed_session_save(const heed_session *session, int64_t sequence, const char *path);
/** Reads it back into an empty sequence. Another model, spec, type, version, or an edited or truncated file
 * is refused and nothing changed. The next logits have the same bits as if the tokens had been read. */
HEED_API heed_status heed_session_load(heed_session *session, int64_t sequence, const char *path);

/** What a session's caches take and what its attention has read, since it was made. */
typedef struct heed_session_usage {
    size_t bytes,
        peak_bytes; /**< pages, positions, summaries and states in use, all sequences; at most so far */
    size_t reserved_bytes;  /**< address space, not memory: room for the most that may be held, in each of the
                               types that pages may change into */
    size_t offloaded_bytes; /**< of them in the file of offloaded pages and not in memory */
    size_t fetched_bytes;   /**< of pages that came into memory, new ones included, since it was made */
    double pairs_read, pairs_open; /**< query-key pairs: whose values were read; that the spec's `where`
                                      leaves open of all tokens read, dropped ones included */
    int64_t dropped;               /**< keys that policies dropped, all layers and heads */
    double products; /**< multiplications of the layers so far: by their weights, and of keys and values that
                        were read */
} heed_session_usage;
HEED_API void heed_session_get_usage(const heed_session *session, heed_session_usage *usage);

/** The keys that a kv head of a layer holds of a sequence: positions in the text, rising, and how many keys
 * each stands for. Writes at most @p most of each (either may be NULL); returns how many there are. */
HEED_API int64_t heed_session_kept(const heed_session *session, int64_t sequence, int64_t layer,
                                   int64_t kv_head, int32_t *pos, float *mass, int64_t most);

/** What new tokens are to cache policies, which act at the end of a prompt and, more rarely, while a text is
 * written. */
typedef enum heed_feed_kind {
    HEED_READ_BY_COUNT = 0, /**< several tokens are a prompt, one is written */
    HEED_READ_PROMPT_PART,  /**< a prompt that goes on in a later call */
    HEED_READ_PROMPT_END,   /**< the end of one, or a whole one */
    HEED_READ_WRITTEN,      /**< a text as if it was written, though several tokens are known at once */
} heed_feed_kind;

/** New tokens of one sequence. */
typedef struct heed_feed_item {
    int64_t sequence;
    const int32_t *tokens;
    int64_t count;
    heed_feed_kind reading;
} heed_feed_item;

/** What to give out while tokens are read. Zero it first. Rows stand in the order of the items and their
 * tokens. */
typedef struct heed_feed_wants {
    float *logits;   /**< [rows wanted, vocabulary] */
    bool all_logits; /**< a row a token; else one row an item, for its last token */
    float *hidden;   /**< [tokens, width] after the last norm */
    /** Called for each layer's attention of each piece of work, in order: captured statistics, valid during
     * the call. */
    void (*captured)(void *context, int64_t layer, int64_t sequence, int64_t query0, int64_t queries,
                     int64_t keys, const heed_capture *capture);
    /** Or weights in tiles, from the fused kernels; called from worker threads. */
    void (*weights)(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile);
    const uint8_t *weight_heads; /**< [layers, heads] 1 for those to stream; NULL: all */
    void *context;
} heed_feed_wants;

/**
 * Reads new tokens of one or several sequences, of different lengths, and appends their keys and values to
 * the caches. Longer items go through in chunks. Gives the same numbers however the tokens are divided among
 * calls, to rounding, and the same bits for a sequence whatever its neighbours are. @return HEED_INVALID when
 * a sequence would exceed the context (both lengths are in the message; nothing was read) or a token is none
 * of the vocabulary.
 */
HEED_API heed_status heed_feed(heed_session *session, const heed_feed_item *items, int64_t count,
                               const heed_feed_wants *wants);

#ifdef __cplusplus
}
#endif
#endif
