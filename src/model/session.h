/* A session from the inside. */
#ifndef HEED_MODEL_SESSION_H
#define HEED_MODEL_SESSION_H

#include "base/arena.h"
#include "cache/pages.h"
#include "model/attention.h"
#include "model/prune.h"
#include "model/reach.h"
#include "model/repeat.h"
#include "model/session_carry.h"
#include "model/session_keep.h"
#include "model/session_recall.h"
#include "model/weights.h"

#include <stdatomic.h>

/* Plans differ by how many queries they take at once; a piece of work goes to the smallest that holds it,
 * chosen by its own length alone, so that neighbours change nothing. */
enum { HEED_RUNGS = 4 };

/* The plans of layers whose attention is written and kept alike. */
typedef struct heed_session_kind {
    char *spec;                /* without the clause `cache` */
    char *prompt;              /* as prompts are read; NULL: the same */
    const heed_recall *recall; /* of the selector whose choice outlives a step; or NULL */
    int64_t unit;              /* keys of its blocks */
    bool carried;              /* no keys are kept, and there are no plans */
    heed_type key_type, value_type;
    int grades; /* of pages, beside the first */
    heed_grade_types grade[HEED_MOST_GRADES];
    int64_t most;                /* keys that a list may hold */
    bool started;                /* lists lose pages at their front: default positions begin at a start */
    bool placed;                 /* every key's position is given, */
    bool mass;                   /* and how many keys it stands for */
    bool summed;                 /* what selectors make of keys is kept with each page */
    unsigned with;               /* captures that policies want */
    int top, window;             /* links a query; last queries whose weights policies want */
    bool prepared;               /* keys are stored as the spec prepares them */
    heed_plan *step;             /* one query of each sequence, of one where `placed`; NULL where attention
                                    looks ahead */
    heed_plan *rung[HEED_RUNGS]; /* up to queries[] of one sequence */
    heed_plan *watch;            /* the weights of the last `window` queries */
} heed_session_kind;

typedef struct heed_session_layer {
    char *text; /* its spec, the clause `cache` included */
    int kind;
    heed_reach *reach; /* [kv_heads] how far back their query heads see */
    bool drops;        /* keys out of reach are dropped */
    heed_chain *chain; /* [kv_heads] policies; NULL where none of them has any */
    int *team;         /* [kv_heads] the first kv head with the same policies */
    int window;        /* last queries that they want to see */
    bool packed;
    heed_form_state aging; /* by which pages change as they age; its form NULL: they do not */
    float *query; /* [sequences][window][heads dim] those queries, by place in the text modulo the window */
    heed_tensor
        *param; /* learnt tensors in the order of its plans; without data: initial values; NULL: none */
} heed_session_layer;

/* What a layer did to a sequence. */
typedef struct heed_past {
    int64_t offset; /* a new key's position is its place in the text less this */
    int64_t gone;   /* place behind the last key that was out of reach and dropped */
    int64_t acted;  /* tokens that were read when what is held last changed, by a policy or with age, */
    int64_t looked; /* and when a policy was last asked */
    int64_t shown;  /* last queries that are kept for policies */
} heed_past;

/* The tokens that a sequence has read. */
typedef struct heed_read {
    int32_t *token;
    int64_t count, room;
} heed_read;

/* New tokens of one sequence that are read together. */
typedef struct heed_piece {
    int64_t sequence, first; /* position of the first token */
    int64_t count, row;      /* rows row.. of the activations */
    const int32_t *tokens;
    const int32_t *place; /* [count] where its tokens stand in the text; NULL: one behind the other */
    int64_t item;         /* of the call it belongs to, */
    int64_t out_row;      /* whose output begins at this row of all tokens */
    bool last;            /* holds the item's last token */
    bool prompt;          /* its tokens are a prompt's, */
    bool ends;            /* which ends with it */
} heed_piece;

/* Activations and everything else that is written while reading. `rows` are those of one step; where a plan's
 * queries may reach beyond them, there is room for `most` more. */
typedef struct heed_work {
    float *x;        /* [rows, width] residual stream */
    float *h;        /* [rows, width] normed, or what a part gives before it is normed */
    float *qkv;      /* [rows + most, (heads + 2 kv_heads) head_dim] */
    float *attended; /* [rows + most, heads head_dim] */
    float *up;       /* [rows, feed_forward, twice if gated] */
    float *key;      /* [threads][2][HEED_KEY_ROWS, head_dim] keys on their way into the cache or out of it */
    int32_t *position; /* [rows + most] as the layer at work counts them */
    char *linear;      /* scratch of products */
    char *attend;      /* scratch of plans */
    int32_t *seen;     /* [sequences, kv_heads] keys that a piece sees, */
    int32_t *start;    /* [sequences] where they start */
    int32_t *asked;    /* [sequences] and its queries, as plans want them */
    int32_t *table;    /* [sequences, kv_heads, pages_each] page lists in the order of pieces */
    heed_piece *piece; /* [rows] */
    int64_t *progress; /* [sequences] tokens of an item that are read */
    int64_t *before;   /* [sequences] length of an item's sequence before the call */
    heed_capture capture;
    heed_grade grade[HEED_MOST_GRADES]; /* pools of the layer at work */
    heed_keep_room keep;
} heed_work;

enum { HEED_KEY_ROWS = 16 };

struct heed_step;

/* Who looks on while a text is read: called before a layer's attention, when work->qkv holds queries, keys
 * and values as the projections and their norms made them. */
typedef struct heed_onlooker {
    heed_status (*look)(void *context, heed_session *session, int64_t layer, const struct heed_step *step);
    void *context;
} heed_onlooker;

struct heed_session {
    const heed_model *model;
    int64_t context, sequences, chunk;
    int64_t limit; /* tokens that a sequence may read: `context`, unless every layer forgets */
    int threads;
    unsigned with;
    int top;
    int64_t queries[HEED_RUNGS]; /* of the rungs; the last is the chunk */
    int rungs;
    heed_session_kind *kind;
    int kinds;
    heed_session_layer *layer; /* [layers] */
    heed_reach *reach;         /* [layers, kv_heads] */
    char *offload;             /* folder of the file of pages; NULL: there is none */
    bool cached;      /* keys are kept; else attention looks both ways and a sequence is read at once */
    heed_pages pages; /* where they are */
    heed_past *past;  /* [sequences + 1, layers] the last one is spare, for what is read aside */
    heed_read *read;  /* [sequences + 1] */
    heed_work work;
    heed_chain *chain; /* [layers, kv_heads] */
    int *team;         /* [layers, kv_heads] */
    heed_wants_of_policies wants;
    heed_prune prune;       /* which tokens of prompts go on to later layers */
    heed_repeat repeat;     /* prompts that are read once more */
    bool recalls;           /* some layer's selector has a memory */
    bool held_young;        /* pages get no other grade when a prompt ends: who tries policies asks for it */
    int64_t chosen_unit;    /* keys of the blocks that the last selection layer so far hands on */
    heed_memory *memories;  /* [sequences, layers + 1]; the last is for what layers hand on */
    heed_memory **recalled; /* [sequences] for an execution */
    heed_showing *showing;  /* [sequences] whose queries those show */
    void *memory_room;
    uint8_t *token_kind;      /* [vocabulary] or NULL */
    heed_session_usage usage; /* pairs and what was dropped */
    int64_t rows;             /* most tokens of a step */
    void *memory;
    size_t work_bytes, attend_bytes;
    heed_onlooker onlooker;
    heed_params *params; /* those of options.params */
    heed_carry *carry;   /* [layers] or NULL: all layers attend to keys that are kept */
};

/* One step: the pieces of `work`, those of a single token first, rows one after the other. */
typedef struct heed_step {
    int64_t pieces, singles, rows;
    const heed_feed_wants *wants;
} heed_step;

/* As heed_feed, of items that were checked; sequence `sequences` is a spare one. feed.c */
heed_status heed_session_feed(heed_session *session, const heed_feed_item *items, int64_t count,
                              const heed_feed_wants *wants);
/* As heed_session_share, of sequences and a length that were checked. session_change.c */
heed_status heed_session_copy(heed_session *session, int64_t from, int64_t to, int64_t length);

heed_status heed_session_read(heed_session *session, const heed_step *step);
/* Its parts: x of the tokens; layers from..to-1; hidden states and logits. */
void heed_session_embed(const heed_session *session, const heed_step *step);
heed_status heed_session_read_layers(heed_session *session, const heed_step *step, int64_t from, int64_t to);
void heed_session_give_out(const heed_session *session, const heed_step *step);

/* The attention of one layer for all pieces: from work->qkv to work->attended. */
heed_status heed_session_attend(heed_session *session, int64_t layer, const heed_step *step);
/* The query of row `row` of a piece once more, by itself, for what is captured. */
heed_status heed_session_attend_again(heed_session *session, int64_t layer, const heed_piece *piece,
                                      int64_t row);

static inline heed_past *heed_past_of(const heed_session *session, int64_t sequence, int64_t layer)
{
    return &session->past[sequence * session->model->config.layers + layer];
}

/* The chains of a layer's kv heads; those of query heads that share one must be the same.
 * session_chains.c */
heed_status heed_session_chains(heed_session *session, int64_t layer, const heed_spec *spec);
/* What plans and store have to do for them. */
heed_status heed_session_serve_chains(heed_session *session, int64_t layer, heed_session_kind *kind,
                                      heed_pages_layer *stored);
/* Whether a layer's policies hold so few keys that a sequence may be read without end. */
bool heed_session_chains_end(const heed_session *session, int64_t layer);
/* Refuses what the plans of the layer's kind cannot do for its policies. */
heed_status heed_session_check_chains(const heed_session *session, int64_t layer);

/* Kinds of tokens for policies that ask: session->token_kind. */
heed_status heed_session_sort_tokens(heed_session *session);

/* Specs, kinds and plans of all layers, and what the store must hold. session_plans.c */
heed_status heed_session_plan(heed_session *session, const heed_session_options *options,
                              heed_pages_layer *stored);

/* Rows of floats become keys or values first... of a list. attend_pieces.c */
void heed_session_store_keys(const heed_session *session, int64_t layer, const heed_kept_keys *list,
                             int64_t first, int64_t count, const float *from, int64_t stride);
void heed_session_store_values(const heed_session *session, int64_t layer, const heed_kept_keys *list,
                               int64_t first, int64_t count, const float *from, int64_t stride);
/* Brings the summaries of a layer's pages up to the keys that its lists hold. attend_pieces.c */
void heed_session_summarise(const heed_session *session, int64_t layer, int64_t sequence);
/* What an execution says that it will read comes into memory. */
typedef struct heed_session_reads {
    const heed_session *session;
    const heed_piece *piece; /* [batch] */
    int64_t layer;
    _Atomic int64_t later; /* keys that were said to be read some time, */
    int64_t most_later;    /* of which so many are brought in beforehand */
} heed_session_reads;
void heed_session_follow_reads(const heed_session *session, int64_t layer, const heed_piece *piece,
                               heed_session_reads *reads, heed_extra *extra);
/* Keys and positions of pieces, as an execution of a plan for `batch` sequences takes them. */
void heed_session_find_keys(heed_session *session, int64_t layer, const heed_piece *piece, int64_t pieces,
                            int64_t batch, heed_extra *extra);

/* The query at a place in the text, one of the last that a layer's policies want to see: [heads, dim] as the
 * projection made it. */
float *heed_shown_query(const heed_session *session, const heed_session_layer *layer, int64_t sequence,
                        int64_t place);

/* Keys of a list that stand before `place` in the text. */
int64_t heed_keys_before(const heed_kept_keys *list, int64_t place);

/* Pages that are old enough are stored otherwise. session_aging.c */
heed_status heed_session_age(heed_session *session, int64_t layer, const heed_piece *piece);
/* Refuses what the plans of the layer's kind cannot show to it. */
heed_status heed_session_check_aging(const heed_session *session, int64_t layer);
/* The grades of a layer's pages; refuses what pages that age cannot do. */
heed_status heed_session_serve_aging(heed_session *session, int64_t layer, const heed_form_state *aging,
                                     heed_session_kind *kind, heed_pages_layer *stored);

/* Drops what the layer's queries can no longer see, at most a page late. */
void heed_session_drop(heed_session *session, int64_t layer, int64_t sequence, int64_t read);

/* The fewest tokens to which a sequence can be cut such that its layers hold what the next token sees. */
int64_t heed_session_shortest(const heed_session *session, int64_t sequence);

/* Drops the keys of tokens from place `length` on, whatever else is gone. session_change.c */
void heed_session_forget(heed_session *session, int64_t sequence, int64_t length);

/* Makes room for the tokens of a sequence. */
heed_status heed_session_grow_tokens(heed_session *session, int64_t sequence, int64_t count);

/* Memory of the session's work; with base NULL it is only measured. */
void heed_session_take_work(heed_session *session, heed_arena *arena);

#endif
