/* Policies in a session: the chains of each layer, and the memory that applying them takes. */
#ifndef HEED_MODEL_SESSION_KEEP_H
#define HEED_MODEL_SESSION_KEEP_H

#include "base/arena.h"
#include "cache/keep.h"

struct heed_session;
struct heed_piece;

/* What all layers' policies want together. */
typedef struct heed_wants_of_policies {
    unsigned observes;
    int window, top;
    bool merges, packed;
    int64_t most; /* keys of a list */
} heed_wants_of_policies;

/* Room for one layer's keys of one sequence, taken out of the pages, and what is seen of queries. */
typedef struct heed_keep_room {
    float *key, *value;   /* [kv_heads][most][dim] */
    float *bare;          /* [kv_heads][most][dim] keys turned back to position 0 */
    int32_t *token;       /* [kv_heads][most] */
    uint8_t *token_kind;  /* [kv_heads][most] */
    float *query;         /* [heads][window][dim] as the projection made them, */
    float *compared;      /* as keys meet them, */
    float *attended;      /* and what they read */
    int32_t *place, *pos; /* [window] of these queries: in the text; as they are compared */
    float *weight;        /* [heads][window][most] */
    float *sum;           /* [most] */
    float *top_weight;    /* [group][chunk][top] */
    int32_t *top_key;
    float *ones;     /* [most] masses of keys that stand for themselves */
    uint8_t *keep;   /* [kv_heads][most] */
    heed_held *held; /* [kv_heads] and what belongs to each: */
    const heed_chain **chain;
    float **keys, **values, **masses;
    uint8_t **keeps;
    bool *changed;
    int32_t *moves; /* [HEED_KEY_ROWS] by how much keys move */
    float *rows;    /* [3][HEED_KEY_ROWS][dim] */
    char *work;     /* of heed_keep_apply */
} heed_keep_room;

/* What applying chains [layers, kv_heads] takes, one layer at a time. */
size_t heed_keep_chain_bytes(const struct heed_session *session, const heed_chain *chains);

void heed_keep_take_room(const struct heed_session *session, heed_keep_room *room, heed_arena *arena);

/* Keeps the last queries of a piece that a layer's policies want to see. */
void heed_session_note_queries(struct heed_session *session, int64_t layer, const struct heed_piece *piece);
/* Hands what was captured of a piece on to the layer's chains; `queries` are those of the plan that ran. */
void heed_session_observe(struct heed_session *session, int64_t layer, const struct heed_piece *piece,
                          int64_t queries);
/* Whether the chain of a kv head, and those like it, have something to do after a piece. */
bool heed_session_is_due(const struct heed_session *session, int64_t layer, const struct heed_piece *piece,
                         int64_t kv_head);
/* The last queries that a layer has seen, `most` at most, in the room of policies. */
typedef struct heed_shown_queries {
    int64_t queries;
    const float *compared; /* [heads][queries][dim] scale included */
    const float *weight; /* of kv head g from g group queries most on: [group][queries][keys held]; or NULL */
} heed_shown_queries;
heed_status heed_session_show_queries(struct heed_session *session, int64_t layer,
                                      const struct heed_piece *piece, int64_t most, bool weights,
                                      heed_shown_queries *shown);

/* After a layer's attention to a piece: drops keys where a policy is due. */
heed_status heed_session_settle(struct heed_session *session, int64_t layer, const struct heed_piece *piece);

#endif
